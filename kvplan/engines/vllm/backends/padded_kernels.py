"""Experts that FlashInfer's TRT-LLM kernels keep wider than they are stored: data-centre Blackwell.

vllm-project/vllm 0.20 … 0.33, vllm/model_executor/layers/: fused_moe/oracle/unquantized.py
(_get_priority_backends, convert_to_unquantized_kernel_format; since 0.31
unquantized_round_up_hidden_size_and_intermediate_size, before it allocates), fused_moe/experts/
trtllm_bf16_moe.py (the devices, activations and routings that the kernel takes), quantization/utils/
flashinfer_fp4_moe.py (prepare_nvfp4_moe_layer_for_fi_or_cutlass, align_fp4_moe_weights_for_fi).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.base import Version
from kvplan.engines.vllm.options import AUTO, VllmOptions
from kvplan.engines.vllm.versions import rules_of
from kvplan.weights.formats import NVFP4, PLAIN, Kernel

_TRTLLM = "flashinfer_trtllm"
PLAIN_PADDED = Kernel("FlashInfer TRT-LLM", width=128, stores=PLAIN)
_AS_STORED = Kernel("a kernel that pads nothing", stores=PLAIN)

_SILU = ("silu", "swish", "swiglu")
_NO_GATE = ("relu2", "relu2_no_mul")
_OTHER_ROUTES = frozenset(
    """cohere2_moe gemma4 gemma4_text gpt_oss interns1_pro_text jamba longcat_flash longcat_flash_ngram
    ernie4_5_moe ernie4_5_vl_moe ernie4_5_vl_moe_text deepseek_v4 deepseek_v41 moondream3 olmoe phimoe
    step3p5 step3p7""".split()
)
"""Types whose class routes by a function of its own, without renormalising, by softmax with a correction or
by sqrtsoftplus, or whose activation is none of the kernel's (models/*.py, what they give FusedMoE)."""
_UNGROUPED = frozenset("minimax_m2 minimax_m3_vl_text laguna k2_horizon".split())
"""Sigmoid with a correction and no groups (RoutingMethodType.MiniMax2)."""
_NOT_NORMALISED = frozenset("qwen2_moe deepseek_v2".split())
"""Types whose published configs say norm_topk_prob false: cards leave the key out."""


def padding_kernels(
    model_type: str,
    config: Mapping[str, object],
    release: Version,
    own: VllmOptions,
    *,
    stored: str | None,
) -> tuple[Kernel, ...]:
    """The kernels of 10.x that may keep experts wider, the likely one first; none where nothing is padded.

    config: the text part's keys. stored: the checkpoint's quantisation, None for the model's own dtype.
    """
    if own.moe_backend not in (AUTO, _TRTLLM) or own.flashinfer == "absent" or own.enable_lora:
        return ()
    ungated = _activation(config) in _NO_GATE
    if stored is not None:
        return _nvfp4(release, ungated=ungated)
    rules = rules_of(release)
    if not rules.padded_plain_experts or own.enable_eplb:
        return ()
    return (PLAIN_PADDED,) if _takes(model_type, config, ungrouped=rules.trtllm_ungrouped) else ()


def _nvfp4(release: Version, *, ungated: bool) -> tuple[Kernel, ...]:
    """Padded once they are loaded; not seen in a start, so as stored is the low end."""
    width = 128 if ungated else rules_of(release).gated_nvfp4_width
    padded = Kernel("FlashInfer TRT-LLM", width=width, stores=NVFP4.name)
    return (padded, Kernel(_AS_STORED.name, stores=NVFP4.name))


def _activation(config: Mapping[str, object]) -> str:
    for key in ("mlp_hidden_act", "hidden_activation", "hidden_act"):
        word = config.get(key)
        if isinstance(word, str):
            return word.lower()
    return _SILU[0]


def _takes(model_type: str, config: Mapping[str, object], *, ungrouped: bool) -> bool:
    """Whether the kernel routes and activates as the class does (trtllm_bf16_moe.py,
    _supports_routing_method, _supports_activation)."""
    if model_type in _OTHER_ROUTES or (model_type in _UNGROUPED and not ungrouped):
        return False
    if _activation(config) not in (*_SILU, *_NO_GATE):
        return False
    return bool(config.get("norm_topk_prob", model_type not in _NOT_NORMALISED))
