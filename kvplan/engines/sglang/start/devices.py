"""Facts of a GPU that SGLang's rules need, with the kernels that keep experts on it."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.config.view import split_quant
from kvplan.engines.sglang.classes import row_of
from kvplan.engines.sglang.versions import Rules
from kvplan.engines.traits import not_on
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.units import MIB
from kvplan.weights.formats import Kernel

FLASHINFER = Kernel("FlashInfer TRT-LLM", width=128, hidden=128, bias_bytes=4)
TRITON = Kernel("Triton", width=64, scale_rows=256, scale_columns=2, bias_bytes=4)
MARLIN = Kernel("Marlin", width=128, hidden=256)
CUTLASS = Kernel("FlashInfer CUTLASS", width=128, hidden=128)
BFLOAT16 = Kernel("bfloat16 (no kernel takes MXFP4 with --ep-size)", width=64, unpacked=True)
_FLASHINFER_WIDE = replace(FLASHINFER, width=256, hidden=256)
_AS_LOADED = replace(TRITON, scale_rows=1, scale_columns=1)
_TOO = replace(TRITON, keeps_scales=True)
_FOURS = replace(_TOO, scale_columns=4)
_AMD = Kernel("Triton", width=128, bias_bytes=4)


_MARLIN = ("NVFP4", "MIXED_PRECISION")


@record()
class Device:
    """capability: compute capability; memory_mib: as nvidia-smi shows it, None where unknown."""

    name: str
    capability: tuple[int, int]
    memory_mib: int | None
    nvidia: bool = True

    @property
    def major(self) -> int:
        return self.capability[0]

    @property
    def hopper(self) -> bool:
        return self.nvidia and self.major == 9

    @property
    def sm100(self) -> bool:
        return self.nvidia and self.major == 10

    @property
    def blackwell(self) -> bool:
        return self.nvidia and self.major in (10, 11, 12)


_OLDEST = (7, 5)
"""sgl-project/sglang python/sglang/srt/model_executor/model_runner.py: "only supports sm75 and above"."""
_ROCM = ("gfx942", "gfx950")
"""sgl-project/sglang sgl-kernel/setup_rocm.py: others are built on request, untested."""
ASSUMED = Device("h100-sxm-80gb (assumed)", (9, 0), 81559)


def device_of(gpu: Gpu | None) -> Device:
    """The GPU's facts; without one an H100's. Raises KvplanError(engine-gpu) for other accelerators."""
    if gpu is None:
        return ASSUMED
    if gpu.vendor.lower() not in ("nvidia", "amd"):
        why = f"the rules of SGLang on {gpu.name} ({gpu.vendor}) are not known"
        raise not_on(gpu, why, "choose an NVIDIA or AMD GPU")
    if (unbuilt := _unbuilt(gpu)) is not None:
        raise not_on(gpu, unbuilt, "choose another GPU")
    memory = gpu.memory_nvml_bytes or gpu.memory_total_bytes
    return Device(
        gpu.name,
        gpu.compute_capability or (9, 0),
        None if memory is None else memory // MIB,
        gpu.vendor.lower() == "nvidia",
    )


def _unbuilt(gpu: Gpu) -> str | None:
    """Why its kernels do not run there; None where they do."""
    capability, target = gpu.compute_capability, gpu.device_target
    if capability is not None and capability < _OLDEST:
        return (
            f"SGLang needs compute capability 7.5 or newer: {gpu.name} has {'.'.join(map(str, capability))}"
        )
    if target is not None and target not in _ROCM:
        return f"SGLang's kernels are built for {' and '.join(_ROCM)}: {gpu.name} is {target}"
    return None


def kernels_of(
    device: Device, rules: Rules, model_type: str = "", *, expert_parallel: bool = False
) -> tuple[Kernel, ...]:
    """The kernels that may keep MXFP4 experts, the likely one first. expert_parallel: --ep-size is not 1.

    sgl-project/sglang python/sglang/srt/layers/quantization/mxfp4.py (Mxfp4MoEMethod.create_weights,
    process_weights_after_loading) pads and rearranges; arg_groups/model_overrides/gpt_oss.py
    (_gpt_oss_overrides; before 0.5.19 arg_groups/overrides.py) chooses, read in 0.5.15 and 0.5.17 to 0.5.23.
    """
    if not device.nvidia:
        return (_AMD, replace(_AMD, hidden=256, width=256, keeps_scales=True))
    flashinfer = FLASHINFER if rules.narrow_experts else _FLASHINFER_WIDE
    # For other models, older releases and AMD GPUs it is not known which of several runs.
    if model_type != "gpt_oss" or not rules.expert_kernels_chosen:
        return (flashinfer, TRITON, _TOO) if device.major == 10 else (_TOO, TRITON, MARLIN)
    if device.major == 10:
        return (flashinfer,)
    if device.major == 12:
        return (CUTLASS if rules.narrow_experts else MARLIN,)
    if expert_parallel:  # nothing is chosen off Blackwell: made whole in bfloat16 (upcast_from_mxfp)
        return (BFLOAT16,)
    # triton_kernels, in the wheel of sglang-kernel: on Hopper the table of scales as it was loaded stays
    # beside the rearranged one, below Hopper they are the same.
    if device.major == 9:
        return (_FOURS if rules.scales_in_fours else _TOO,)
    return (_AS_LOADED,) if device.major < 9 else (_TOO, TRITON, MARLIN)


def keeps_experts_together(model: Model, device: Device, a2a: str) -> bool:
    """Whether the experts run in FlashInfer's CUTLASS kernel, which takes an --ep-size of 1 or of all ranks.

    sgl-project/sglang 0.5.23 arg_groups/model_overrides/nemotron_h.py (_nemotron_h_overrides),
    arg_groups/overrides.py (_moe_runner_backend_quant_constraints), arg_groups/moe_hook.py
    (check_moe_runner_backend's assertions).
    """
    if not device.nvidia:
        return False
    algorithm = modelopt_algorithm(model)
    if algorithm == "NVFP4" and device.major in (11, 12):
        return True
    if not row_of(model.architecture).marlin_experts or (
        algorithm is None and model.quantization is not None
    ):
        return False
    if device.major == 10 and a2a == "none":
        return False
    return not (algorithm in _MARLIN and (8, 0) <= device.capability < (10, 0))


def modelopt_algorithm(model: Model) -> str | None:
    """ModelOpt's quant_algo, of the config or of hf_quant_config.json; None for other formats."""
    raw, beside = split_quant(model.config or {})
    inside = raw.get("quantization_config")
    if isinstance(inside, Mapping) and not str(inside.get("quant_method", "modelopt")).startswith("modelopt"):
        return None
    for found in (inside, beside):
        if isinstance(found, Mapping):
            nested = found.get("quantization")
            word = found.get("quant_algo") or (
                nested.get("quant_algo") if isinstance(nested, Mapping) else None
            )
            if isinstance(word, str):
                return word.upper()
    return None
