"""Block scales of FP8 on a GPU that cannot multiply FP8: its kernel wants a scale for every output.

Marlin takes scales of groups, not of blocks: those of a block are repeated for each of its outputs, in the
model's dtype (vllm-project/vllm quantization/utils/marlin_utils_fp8.py, prepare_fp8_layer_for_marlin and
prepare_fp8_moe_layer_for_marlin: weight_scale_inv.to(orig_dtype), repeat_interleave(block_n), 0.20 to 0.32).
Two RTX 3090 with Qwen3.8-27B-FP8 and 0.27.1 print 14.46 GiB of weights on each, 14.30 without this.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from kvplan.weights.formats import Format
from kvplan.weights.inventory import Inventory, Tensor
from kvplan.weights.ranks import Parallel, elements_on_rank, stage_layers

_EIGHT = 8


def expanded_bytes(inventory: Inventory, parallel: Parallel, element: int) -> tuple[int, ...]:
    """numbers / (inputs of a block) · element − numbers / (numbers of a block) · (bytes of its scale), on the
    fullest rank of each stage. element: bytes of the model's dtype."""
    found, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        held: Counter[Tensor] = Counter()
        for block in inventory.layers[start : start + count]:
            held.update(tensor for tensor in block.tensors if _in_blocks(tensor.form))
        amounts = (
            elements_on_rank(tensor, parallel) * times * _more(tensor.form, element)
            for tensor, times in held.items()
            if tensor.form is not None
        )
        found.append(int(sum(amounts)))
        start += count
    return tuple(found)


def _in_blocks(form: Format | None) -> bool:
    return form is not None and form.bits == _EIGHT and min(form.block) > 1 and bool(form.scale_bytes)


def _more(form: Format, element: int) -> Fraction:
    """Bytes for each number of the matrix."""
    outputs, inputs = form.block
    return Fraction(element, inputs) - Fraction(form.scale_bytes or 0, outputs * inputs)
