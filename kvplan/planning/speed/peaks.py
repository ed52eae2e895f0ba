"""Which arithmetic a stored weight is multiplied in on a GPU, and how fast that is.

A format whose numbers the tensor cores take computes in its own peak; every other one is stored small and
multiplied in 16 bit (weights-only kernels: vllm-project/vllm
vllm/model_executor/layers/quantization/, marlin and its relatives).
"""

from __future__ import annotations

from kvplan.assumption import Assumption
from kvplan.errors import RefusedError
from kvplan.gpu import Gpu
from kvplan.record import record
from kvplan.weights.formats import Format

SIXTEEN = ("bf16", "fp16")
TERA = 10**12

# Beginning of a format's name → the peak it can compute in, and the tensor cores that this takes.
# mxfp4 weights meet mxfp8 activations, so Blackwell's FP4 units run them at the FP8 rate.
_PEAKS = (
    ("fp8", "fp8", "fp8_tensor_cores"),
    ("int8, one scale", "int8", ""),
    ("nvfp4", "fp4", "fp4_tensor_cores"),
    ("mxfp4", "fp8", "fp4_tensor_cores"),
    ("mxfp8", "fp8", "fp4_tensor_cores"),
)


@record()
class Peak:
    """A dense peak: 10**12 operations a second × 10**12. weights_only: stored smaller than computed."""

    dtype: str
    flops_per_second: float
    weights_only: bool
    assumption: Assumption

    @property
    def kind(self) -> str:
        """``16``, ``8`` or ``4``: the class of arithmetic that an efficiency belongs to."""
        return {"bf16": "16", "fp16": "16", "fp8": "8", "int8": "8", "fp4": "4"}[self.dtype]


def arithmetic_of(peak: Peak, form: Format | None) -> str:
    """The peak's kind, ``8-block`` where 8-bit weights have a scale for each block of inputs: kernels then
    add up in pieces and scale each (deepseek-ai/DeepGEMM README.md), and reach less of the peak than with
    one scale for a matrix or an output.
    """
    blocks = peak.kind == "8" and form is not None and form.name.startswith("fp8, blocks")
    return f"{peak.kind}-block" if blocks else peak.kind


def peak_for(form: Format | None, dtype_name: str, gpu: Gpu) -> Peak:
    """The peak in which weights of this format are multiplied.

    Raises RefusedError(unknown-peak): the GPU's rate is not known, or the model computes in float32;
    no-speed-rule: the maker's GPUs have no kernel for the format.
    """
    if form is not None:
        if gpu.vendor == "amd" and form.name.startswith("nvfp4"):
            raise RefusedError("no-speed-rule", f"nvfp4 weights are emulated on {gpu.slug}: never measured")
        for beginning, dtype, cores in _PEAKS:
            if form.name.startswith(beginning):
                if (not cores or getattr(gpu, cores)) and dtype in gpu.dense_tflops:
                    return _peak(gpu, dtype, weights_only=False)
                if cores and getattr(gpu, cores):
                    raise _unknown(gpu, dtype)
                break
    elif dtype_name not in ("bfloat16", "float16"):
        raise RefusedError(
            "unknown-peak", f"speed in {dtype_name} is not estimated", help="serve the model in bfloat16"
        )
    return sixteen_bit(gpu, dtype_name, weights_only=form is not None)


def sixteen_bit(gpu: Gpu, dtype_name: str, *, weights_only: bool = False) -> Peak:
    """The 16-bit peak: the dtype's own, else that of the other 16-bit type, whose rate is the same."""
    own = "fp16" if dtype_name == "float16" else "bf16"
    for dtype in (own, *SIXTEEN):
        if dtype in gpu.dense_tflops:
            return _peak(gpu, dtype, weights_only=weights_only)
    raise _unknown(gpu, own)


def _peak(gpu: Gpu, dtype: str, *, weights_only: bool) -> Peak:
    flops = gpu.dense_tflops[dtype] * TERA
    source = gpu.provenance.get(f"dense_tflops.{dtype}", "unverified")
    return Peak(dtype, flops, weights_only, Assumption(f"peak.{dtype}", flops, "FLOP/s", source))


def _unknown(gpu: Gpu, dtype: str) -> RefusedError:
    known = ", ".join(sorted(gpu.dense_tflops)) or "none"
    return RefusedError(
        "unknown-peak",
        f"the {dtype} rate of {gpu.slug} is not known (known: {known})",
        help="write a spec file for the GPU with dense_tflops and its source",
    )


_GENERATIONS = {8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell"}
"""NVIDIA's, by the whole part of the compute capability; Ada's tensor cores are programmed as Ampere's."""


def generation_of(gpu: Gpu) -> str:
    """The word for a GPU's generation in the table of assumptions; the maker's name for other makers'."""
    if gpu.vendor != "nvidia" or gpu.compute_capability is None:
        return gpu.vendor
    return _GENERATIONS.get(gpu.compute_capability[0], "other")


def memory_rate(gpu: Gpu) -> Assumption:
    """The GPU's memory bandwidth. Raises RefusedError(unknown-bandwidth)."""
    rate = gpu.bandwidth_bytes_per_second
    if rate is None:
        raise RefusedError(
            "unknown-bandwidth",
            f"the memory bandwidth of {gpu.slug} is not known",
            help="write a spec file for the GPU with bandwidth_bytes_per_second and its source",
        )
    source = gpu.provenance.get("bandwidth_bytes_per_second", "unverified")
    return Assumption("memory_bandwidth", float(rate), "B/s", source)
