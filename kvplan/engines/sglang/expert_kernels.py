"""Which kernel keeps MXFP4 experts in SGLang, and how.

sgl-project/sglang python/sglang/srt/layers/quantization/mxfp4.py (Mxfp4MoEMethod.create_weights,
process_weights_after_loading): FlashInfer's kernels pad both sizes to 256, Triton's the width to 64 (128 on
AMD GPUs); which one runs follows from --moe-runner-backend and what is installed, so that both are named.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.engines.sglang.devices import Device
from kvplan.weights.formats import Kernel

FLASHINFER = Kernel("FlashInfer TRT-LLM", width=256, hidden=256, bias_bytes=4)
TRITON = Kernel("Triton", width=64, scale_rows=256, scale_columns=2, bias_bytes=4)
MARLIN = Kernel("Marlin", width=128, hidden=256)
_TOO = replace(TRITON, keeps_scales=True)
_AMD = Kernel("Triton", width=128, bias_bytes=4)


def kernels_of(device: Device) -> tuple[Kernel, ...]:
    """The kernels that may keep the experts, the likely one first."""
    if not device.nvidia:
        return (_AMD, replace(_AMD, hidden=256, width=256, keeps_scales=True))
    if device.major == 10:
        return (FLASHINFER, TRITON, _TOO)
    return (_TOO, TRITON, MARLIN)
