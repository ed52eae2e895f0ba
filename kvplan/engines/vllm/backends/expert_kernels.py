"""Which kernel keeps MXFP4 experts in vLLM, and how: by release, GPU and lineage.

vllm-project/vllm vllm/model_executor/layers/quantization/mxfp4.py (create_weights,
process_weights_after_loading), since 0.19 fused_moe/oracle/mxfp4.py
(mxfp4_round_up_hidden_size_and_intermediate_size, convert_*_kernel_format), read in 0.10.1 … 0.33.
"""

from __future__ import annotations

from kvplan.engines.base import Version
from kvplan.engines.release_rules import within
from kvplan.engines.vllm.options import AUTO
from kvplan.engines.vllm.versions import rules_of
from kvplan.record import record, replace
from kvplan.weights.formats import Kernel

MARLIN = Kernel("Marlin", width=128, hidden=256)
HUMMING = Kernel("Humming", width=128, hidden=256)
"""It pads a matrix's outputs to 256 and its inputs to 128 (humming/moe.py, _prepare_and_transform_sublayer)
and keeps as many bytes as are stored (humming-kernels 0.1.19 transform.py)."""
TRITON = Kernel("Triton", width=64, scale_rows=256, scale_columns=2, bias_bytes=4)
"""Tables of scales: triton-lang/triton python/triton_kernels tensor_details/layout_details/ (hopper_scale.py,
blackwell_scale.py; 3.5 and 3.6)."""
_LOADED_TOO = replace(TRITON, keeps_scales=True)
"""Until 0.25: the table of scales as it was loaded stays beside the rearranged one."""
_FOURS = replace(TRITON, scale_columns=4)
_BLACKWELL = Kernel("Triton", width=64, scale_rows=128, scale_columns=8, bias_bytes=4)
_BLACKWELL_TOO = replace(_BLACKWELL, keeps_scales=True)
_ROCM = Kernel("Triton", width=256, hidden=256, bias_bytes=4)
_ROCM_NARROW = Kernel("Triton", width=128, bias_bytes=4)
TRTLLM = Kernel("FlashInfer TRT-LLM", width=256, hidden=256, bias_bytes=4)
_TRTLLM_NARROW = replace(TRTLLM, width=128)
CUTLASS = Kernel("FlashInfer CUTLASS", width=128, hidden=128)
DEEP_GEMM = Kernel("DeepGEMM", width=128, hidden=128)

_OLDEST = _ANY = ""


@record()
class Row:
    """The kernels of the releases [since, until) on GPUs of capabilities [low, high), the likely first."""

    low: tuple[int, int]
    high: tuple[int, int]
    since: str
    until: str
    kernels: tuple[Kernel, ...]


_GPT_OSS = (
    Row((8, 0), (9, 0), _OLDEST, _ANY, (MARLIN,)),
    Row((9, 0), (10, 0), _OLDEST, "0.12", (MARLIN, _LOADED_TOO, CUTLASS)),
    Row((9, 0), (10, 0), "0.12", "0.25", (_LOADED_TOO, MARLIN, CUTLASS)),
    Row((9, 0), (10, 0), "0.25", "0.27", (TRITON, MARLIN, CUTLASS)),
    Row((9, 0), (10, 0), "0.27", _ANY, (_FOURS, MARLIN, CUTLASS)),
    Row((10, 0), (11, 0), _OLDEST, "0.25", (TRTLLM, CUTLASS, _BLACKWELL_TOO, MARLIN)),
    Row((10, 0), (11, 0), "0.25", "0.27", (TRTLLM, CUTLASS, _BLACKWELL, MARLIN)),
    Row((10, 0), (11, 0), "0.27", _ANY, (_TRTLLM_NARROW, CUTLASS, _BLACKWELL, MARLIN)),
    Row((11, 0), (99, 0), _OLDEST, "0.12", (MARLIN, _BLACKWELL_TOO)),
    Row((11, 0), (99, 0), "0.12", "0.32", (MARLIN,)),
    Row((11, 0), (99, 0), "0.32", _ANY, (MARLIN, _BLACKWELL)),
)
"""get_mxfp4_backend; since 0.19 _get_priority_backends_for_gpt_oss, filtered by what each kernel runs on."""
_OTHERS = (
    # Before Marlin on GPUs of 9.0 alone (quantization/utils/humming/priority.py, prioritize_humming).
    Row((9, 0), (9, 1), "0.32", _ANY, (HUMMING, MARLIN)),
    Row((7, 5), (10, 0), _OLDEST, _ANY, (MARLIN,)),
    Row((10, 0), (11, 0), _OLDEST, "0.27", (TRTLLM, DEEP_GEMM, MARLIN)),
    Row((10, 0), (11, 0), "0.27", _ANY, (_TRTLLM_NARROW, DEEP_GEMM, MARLIN)),
    Row((11, 0), (99, 0), _OLDEST, _ANY, (MARLIN, DEEP_GEMM)),
)
"""_get_priority_backends: DeepSeek-V4, Kimi-K3 and checkpoints of other makers; no biases."""
_AMD = (
    Row((0, 0), (99, 0), _OLDEST, "0.25", (replace(_ROCM, keeps_scales=True), _ROCM, _ROCM_NARROW)),
    Row((0, 0), (99, 0), "0.25", _ANY, (_ROCM, _ROCM_NARROW)),
)


_BY_BACKEND = {
    "humming": "Humming",
    "marlin": "Marlin",
    "triton": "Triton",
    "deep_gemm": "DeepGEMM",
    "flashinfer_cutlass": "FlashInfer CUTLASS",
    "flashinfer_trtllm": "FlashInfer TRT-LLM",
}
"""map_mxfp4_backend: --moe-backend → `Kernel.name`. What others keep (b12x …) is not described."""


def kernels_of(
    model_type: str,
    *,
    vendor: str,
    capability: tuple[int, int],
    release: Version,
    adapters: bool,
    backend: str = AUTO,
) -> tuple[Kernel, ...]:
    """The kernels that may keep the experts, the likely one first; none where the table has no row.

    adapters: with LoRA the Marlin kernels are taken before Triton's (get_mxfp4_backend_with_lora).
    backend: --moe-backend.
    """
    rows = _AMD if vendor == "amd" else _GPT_OSS if model_type == "gpt_oss" else _OTHERS
    for row in rows:
        if row.low <= capability < row.high and within(release, row.since, row.until):
            # Since 0.12 triton_kernels is in the wheel and FlashInfer among the requirements: the first is
            # certain.
            certain = vendor != "amd" and rules_of(release).expert_kernels_installed
            return _asked(row.kernels, backend, adapters, certain=certain)
    return ()


def _asked(kernels: tuple[Kernel, ...], backend: str, adapters: bool, *, certain: bool) -> tuple[Kernel, ...]:
    named = tuple(kernel for kernel in kernels if kernel.name == _BY_BACKEND.get(backend))
    if named or backend != AUTO:
        return named or kernels
    if adapters and MARLIN in kernels:
        return (MARLIN, *(kernel for kernel in kernels if kernel != MARLIN))
    return kernels[:1] if certain else kernels
