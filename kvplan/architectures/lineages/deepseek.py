"""DeepSeek up to V3.2 (latent attention, an indexer), and Unlimited-OCR.

Sources: huggingface/transformers 5.23.0 models/{deepseek_v2,deepseek_v3,deepseek_v32,unlimited_ocr};
vllm-project/vllm 0.32 vllm/model_executor/models/deepseek_v2.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads, one_kind
from kvplan.architectures.blocks.latent import DEEPSEEK_MOE, DSA, MLA, deepseek_tensors
from kvplan.architectures.blocks.plain import Plain
from kvplan.architectures.blocks.recipe import FULL, INDEXED, Parts, Recipe, all_of
from kvplan.architectures.config.custom_types import VLLM_CONFIGS, VLLM_MODELS, copy_of, own_keys, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import lineage
from kvplan.families import FullAttention


def _reference_window(view: ConfigView) -> Parts:
    """The whole prompt stays; what follows it has a window, which an answer shorter than it never fills."""
    return (FullAttention(num_kv_heads(view), head_dim(view)),)


def _unlimited_ocr(view: ConfigView, count: int) -> list[str]:
    return ["reference_sliding_attention" if view.get("sliding_window") is not None else FULL] * count


lineage(
    "deepseek",
    reads=own_keys(VLLM_MODELS + "deepseek_v2.py (DeepseekForCausalLM)"),
    tensors=Plain(moe=DEEPSEEK_MOE),
)
lineage("deepseek_v2", layers=Recipe(MLA, one_kind), tensors=deepseek_tensors)
lineage("deepseek_v3", layers=Recipe(MLA, one_kind), tensors=deepseek_tensors, prediction=Prediction())
lineage(
    "deepseek_v32", layers=Recipe(DSA, all_of(INDEXED)), tensors=deepseek_tensors, prediction=Prediction()
)
lineage(
    "unlimited_ocr_text",
    layers=Recipe({**ATTENTION, "reference_sliding_attention": _reference_window}, _unlimited_ocr),
)
lineage(
    "sarvam_mla",
    reads=copy_of("deepseek_v3", VLLM_MODELS + "sarvam.py (SarvamMLAForCausalLM)", inherits=False),
)
lineage(
    "deepseek_vl_v2", reads=wrapper_of(VLLM_CONFIGS + "deepseek_vl2.py", "language_config", "deepseek_v2")
)
