"""Weights with a scale for each block of numbers, of which a rank would have a part.

vllm-project/vllm vllm/model_executor/layers/quantization/: utils/fp8_utils.py (validate_fp8_block_shape,
validate_fp8_block_shape_moe; in fp8.py until 0.10), auto_awq.py (create_weights; awq.py until 0.23),
compressed_tensors/schemes/compressed_tensors_wNa16.py and compressed_tensors_moe/. Read in 0.8.5, 0.11, 0.19,
0.20, 0.22, 0.24, 0.25 and 0.27 to 0.33.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING

from kvplan.engines.base import CUT_BLOCKS
from kvplan.engines.vllm.options import BLACKWELL, TRITON, VllmOptions
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.engines.vllm.versions import Rules, rules_of
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.engines import undivided
    from kvplan.weights import ranks, shares
else:
    undivided = later("kvplan.engines", "undivided")
    ranks, shares = later("kvplan.weights", "ranks shares")

_REFINED_ON = (8, 9)
"""The oldest NVIDIA GPUs on which Triton's kernels run FP8: no other kernel takes such blocks."""
_SIXTEEN = 16
"""Numbers that share a scale of NVFP4."""
_FASTER_FROM = (9, 0)
"""The oldest NVIDIA GPUs with DeepGEMM, or FlashInfer's and CUTLASS's kernels for blocks."""
_GROUPED = ("awq", "compressed-tensors")
"""Methods whose other matrices are held to whole groups; GPTQ's kernels differ."""


def divided_refusal(
    model: Model, settings: Layout, resolved: Resolved, version: str, *, assumed: bool = False
) -> Refusal | None:
    """The first matrix of which a rank would have a part of a block, where vLLM stops at it."""
    rules = rules_of(version)

    def stops(cut: shares.Cut, method: str) -> bool:
        if cut.in_groups:
            known = method in _GROUPED and cut.side is shares.Side.INPUTS
            return known and (not cut.is_expert or (method != "awq" and rules.grouped_experts_whole))
        if cut.in_nvfp4 and cut.step == _SIXTEEN:
            # Linear layers stop on every GPU (modelopt.py, create_weights); experts where Marlin pads them.
            return cut.side is shares.Side.INPUTS and (not cut.is_expert or _by_marlin(resolved))
        if not cut.in_blocks:
            return False
        if not cut.is_expert:  # outputs: fused matrices keep a whole scale for a part of a block
            return cut.side is shares.Side.INPUTS
        return not (method == "fp8" and _runs(cut, settings, resolved, rules))

    whole_experts = "" if settings.enable_expert_parallel else "--enable-expert-parallel"
    return undivided.block_refusal(
        model, settings, resolved.tp, _divided(settings), stops, whole_experts, assumed=assumed
    )


def _by_marlin(resolved: Resolved) -> bool:
    """NVFP4 experts before Blackwell: the scales of whole groups are padded to another size than the numbers
    (vllm-project/vllm#49949)."""
    return resolved.device.vendor == "nvidia" and resolved.device.major < BLACKWELL


def slower_kernels(model: Model, settings: Layout, resolved: Resolved, version: str) -> str | None:
    """That the experts' blocks are cut, so that Triton alone runs them where the GPU has faster kernels
    (vllm/model_executor/layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape, 0.32: DeepGEMM,
    FlashInfer and CUTLASS take blocks of 128 × 128 only); None where no block is cut, or Triton was asked
    for."""
    device, rules = resolved.device, rules_of(version)
    if device.vendor != "nvidia" or device.assumed or device.capability < _FASTER_FROM:
        return None
    if VllmOptions.of(settings).moe_backend not in (None, "auto"):
        return None

    def refined(cut: shares.Cut, method: str) -> bool:
        whole = method == "fp8" and cut.is_expert and cut.in_blocks
        return whole and _runs(cut, settings, resolved, rules)

    found = undivided.first_cut(model, settings, resolved.tp, _divided(settings), refined)
    if found is None:
        return None
    cut, smaller = found
    whole = settings.enable_expert_parallel or resolved.tp == 1  # the width itself is no number of blocks
    ways = [] if whole else [f"--tp {smaller}"] * bool(smaller) + ["--enable-expert-parallel"]
    by = "the width of an expert" if whole else f"--tp {resolved.tp}"
    text = (
        f"{by} {CUT_BLOCKS} ({cut.size:,} of {cut.step} on a rank): Triton's kernels run them, not"
        " DeepGEMM's or FlashInfer's"
    )
    return f"{text}; whole blocks: {' or '.join(ways)}" if ways else text


def part_refusal(model: Model, settings: Layout, resolved: Resolved) -> Refusal | None:
    """A matrix of the decoder of which the ranks would have unequal parts (`kvplan.engines.undivided`), in
    every release."""
    return undivided.undivided_refusal(model, settings, resolved.tp, _divided(settings))


def _divided(settings: Layout) -> Callable[[int], ranks.Parallel]:
    """How the weights lie over so many tensor-parallel ranks."""

    def over(tp: int) -> ranks.Parallel:
        return ranks.Parallel(
            tensor_parallel_size=tp,
            data_parallel_size=settings.data_parallel_size,
            enable_expert_parallel=settings.enable_expert_parallel,
        )

    return over


def _runs(cut: shares.Cut, settings: Layout, resolved: Resolved, rules: Rules) -> bool:
    """Whether a smaller block divides everything and a kernel that takes it runs
    (vllm/model_executor/layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape, since 0.29); kernels that
    are asked for by name pad a part of whole blocks instead (pad_tp_shard_to_weight_blocks, since 0.31)."""
    own = VllmOptions.of(settings)
    if own.moe_backend not in TRITON:
        ways = resolved.tp * settings.data_parallel_size
        whole = cut.size * ways % cut.step == 0 and cut.other % cut.step == 0
        return (
            rules.padded_expert_blocks
            and ways > 1
            and not settings.enable_expert_parallel
            and whole
            and not own.enable_lora
        )
    device = resolved.device
    runs = device.vendor != "nvidia" or device.assumed or device.capability >= _REFINED_ON
    return (
        rules.refined_expert_blocks
        and runs
        and gcd(*cut.form.block, cut.size, cut.other) >= ranks.SMALLEST_BLOCK
    )
