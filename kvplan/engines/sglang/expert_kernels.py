"""Which kernel keeps MXFP4 experts in SGLang, and how; whose experts are divided by all ranks or by none.

sgl-project/sglang python/sglang/srt/layers/quantization/mxfp4.py (Mxfp4MoEMethod.create_weights,
process_weights_after_loading): FlashInfer's kernels pad both sizes to 256, Triton's the width to 64 (128 on
AMD GPUs); which one runs follows from --moe-runner-backend and what is installed, so that both are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvplan.architectures.config.quant_file import split_quant
from kvplan.engines.sglang.devices import Device
from kvplan.model import Model
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


_NEMOTRON = frozenset(("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "NemotronH_Omni_Reasoning_V3"))
_MARLIN = ("NVFP4", "MIXED_PRECISION")


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
    if model.architecture not in _NEMOTRON or (algorithm is None and model.quantization is not None):
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
