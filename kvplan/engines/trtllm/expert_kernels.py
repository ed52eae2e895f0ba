"""How TensorRT-LLM keeps MXFP4 experts: which of its kernels pads how is not described here.

The kernels of NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/fused_moe/ (Triton on Hopper, TRTLLM-Gen and
CUTLASS on Blackwell) pad by at most 256 in both sizes; the interval reaches from none to that.
"""

from __future__ import annotations

from kvplan.weights.formats import Kernel

KERNELS = (
    Kernel("a kernel padding to 128 and 256", width=128, hidden=256),
    Kernel("one without padding"),
    Kernel("one padding to 256", width=256, hidden=256, bias_bytes=4),
)
