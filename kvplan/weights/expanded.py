"""Matrices that engines keep otherwise than they are stored: with more for each number, or a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from kvplan.weights.formats import Format
from kvplan.weights.inventory import Inventory, Role, Tensor
from kvplan.weights.ranks import Parallel, elements_on_rank, stage_layers


@lru_cache(maxsize=64)
def held(inventory: Inventory, stages: int = 1) -> tuple[Mapping[Tensor, int], ...]:
    """Of each stage its tensors and the number of its layers that have each."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), stages):
        blocks = inventory.layers[start : start + count]
        found.append(Counter(tensor for block in blocks for tensor in block.tensors))
        start += count
    return tuple(found)


_EIGHT = 8
_MACHETE_BITS, _MACHETE_GROUPS = (4, 8), (0, 64, 128)
"""Of unsigned integers, and the groups of inputs that it takes; 0: a whole row (machete_utils.py)."""


@lru_cache(maxsize=1024)
def expanded_bytes(
    inventory: Inventory, parallel: Parallel, more: Callable[[Tensor, int], Fraction], element: int
) -> tuple[int, ...]:
    """Numbers · what each takes more, on the fullest rank of each stage. more: bytes for one number of a
    matrix (`repeated_scales`, `whole_zero_points`). element: bytes of the model's dtype."""
    return tuple(
        int(
            sum(
                elements_on_rank(tensor, parallel) * layers * more(tensor, element)
                for tensor, layers in tensors.items()
                if tensor.form is not None
            )
        )
        for tensors in held(inventory, parallel.pipeline_parallel_size)
    )


def repeated_scales(tensor: Tensor, element: int) -> Fraction:
    """element / (inputs of a block) − (bytes of its scale) / (numbers of a block); 0 where a scale is not of
    a block of 8-bit numbers.

    On a GPU that cannot multiply FP8 Marlin repeats the scale of a block for each of its outputs, in the
    model's dtype (vllm-project/vllm quantization/utils/marlin_utils_fp8.py, prepare_fp8_layer_for_marlin and
    prepare_fp8_moe_layer_for_marlin, 0.20 to 0.32). Two RTX 3090 with Qwen3.8-27B-FP8 and 0.27.1 print 14.46
    GiB of weights on each, 14.30 without this.
    """
    form = tensor.form
    if form is None or form.bits != _EIGHT or min(form.block) <= 1 or not form.scale_bytes:
        return Fraction(0)
    outputs, inputs = form.block
    return Fraction(element, inputs) - Fraction(form.scale_bytes or 0, outputs * inputs)


def whole_zero_points(tensor: Tensor, element: int) -> Fraction:
    """(element − bits of a zero point / 8) / (inputs of a group); 0 where there are none, of experts, and of
    what Machete does not take.

    On Hopper Machete, which comes first there, takes zero points multiplied with their scales, in the model's
    dtype (model_executor/kernels/linear/mixed_precision/machete.py, transform_w_zp). The parameters of
    Qwen2.5-7B in AWQ, loaded by 0.33 on an H100, are these to the byte.
    """
    form, inputs = tensor.form, _inputs(tensor)
    if form is None or not form.zero_bits or tensor.role is Role.EXPERT or not _machete_takes(form):
        return Fraction(0)
    group = form.block[1] or inputs
    return (element - Fraction(form.zero_bits, 8)) / group


def _machete_takes(form: Format) -> bool:
    return form.bits in _MACHETE_BITS and form.block[1] in _MACHETE_GROUPS


def _inputs(tensor: Tensor) -> int:
    inputs = 1
    for dim in tensor.columns:
        inputs *= dim.value
    return inputs


_NAME = "self_attn.kv_b_proj"


def projections(inventory: Inventory, stages: int = 1) -> tuple[Mapping[Tensor, int], ...]:
    """Of each pipeline stage the matrices, and how many of its layers have each."""
    return tuple(
        {
            tensor: layers
            for tensor, layers in tensors.items()
            if tensor.columns and tensor.name.endswith(_NAME)
        }
        for tensors in held(inventory, stages)
    )


def again_bytes(
    inventory: Inventory, parallel: Parallel, bytes_of: Callable[[Tensor], int]
) -> tuple[int, ...]:
    """Bytes of latent attention's second kv_b_proj on the fullest rank of each stage: for decoding one half
    of it is multiplied into the query, the other out of the attention (DeepSeek-V2, arXiv:2405.04434, 2.1.2).
    bytes_of: of one number of a matrix's copy."""
    return tuple(
        sum(
            elements_on_rank(tensor, parallel) * layers * bytes_of(tensor)
            for tensor, layers in tensors.items()
        )
        for tensors in projections(inventory, parallel.pipeline_parallel_size)
    )
