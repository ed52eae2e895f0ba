"""What SGLang 0.5.23 knows of model classes.

sgl-project/sglang python/sglang/srt: EntryClass in models/*.py, is_hybrid_swa_model in
configs/model_config.py, _MAMBA_EXTRA_BUFFER_ARCHS in arg_groups/overrides.py,
arg_groups/model_overrides/*.py.
"""

from __future__ import annotations

from kvplan.engines.supported import classes
from kvplan.families import ChunkedAttention, Kind, MultiHeadLatentAttention, SlidingWindow
from kvplan.model import Model
from kvplan.results import Refusal

SERVED = frozenset(classes("sglang", "builds"))
# Window layers get a pool of their own in these only; all others keep every token of them.
HYBRID_SWA = frozenset(classes("sglang", "window_pool"))
# The same by model type, for a config that names no class.
HYBRID_SWA_TYPES = frozenset(
    """
    beam llama4 deepseek_v4 gpt_oss granite_swa granitemoe_swa iquest_q1 mimo_v2 mimo_v2_flash step3p5
    step3p7 gemma4 gemma4_text gemma4_unified gemma4_unified_text laguna mellum muse_glimmer
    muse_glimmer_text inkling unlimited_ocr dots3_note
    """.split()
)
RATIO_OVERRIDES = {"InklingForConditionalGeneration": "0.1", "DeepseekV4ForCausalLM": "0.1"}
"""--swa-full-tokens-ratio where the model's own override sets it; 0.8 elsewhere."""
EXTRA_BUFFER = frozenset(classes("sglang", "extra_buffer"))
EXTRA_BUFFER_TYPES = frozenset(
    """
    kimi_linear qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_next qwen4_exp falcon_h1
    granitemoehybrid nemotron_h bailing_hybrid
    """.split()
)
# The states that SGLang's MambaPool is described for here; Zaya's and Inkling's have shapes of their own.
STATES = frozenset(("mamba1", "mamba2", "gated_delta_net", "kda", "short_convolution", "lightning_attention"))
_NO_CLASS = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}
_DEEPSEEK = frozenset(classes("sglang", "like_deepseek"))
_DEEPSEEK_TYPES = frozenset(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "longcat_flash"))


def is_one_of(model: Model, classes: frozenset[str], types: frozenset[str]) -> bool:
    """By the class that the config names, else by its model type."""
    if model.architecture is not None:
        return model.architecture in classes
    return model.model_type in types


def has_window_pool(model: Model) -> bool:
    """is_hybrid_swa_model, for a model that has window layers."""
    windows = any(_is_window(part) for run in model.runs for part in run.layer.parts)
    return windows and is_one_of(model, HYBRID_SWA, HYBRID_SWA_TYPES)


def _is_window(part: object) -> bool:
    if isinstance(part, MultiHeadLatentAttention):
        return part.sliding_window is not None
    return isinstance(part, (SlidingWindow, ChunkedAttention))


def is_deepseek(model: Model) -> bool:
    """The family of arg_groups/model_overrides/deepseek_v2.py."""
    return is_one_of(model, _DEEPSEEK, _DEEPSEEK_TYPES)


def has_extra_buffer(model: Model) -> bool:
    return is_one_of(model, EXTRA_BUFFER, EXTRA_BUFFER_TYPES)


def refusal_of(model: Model) -> Refusal | None:
    """A model that SGLang cannot serve from its own classes or through transformers'."""
    parts = [part for run in model.runs for part in run.layer.parts]
    for part in parts:
        if part.family in _NO_CLASS:
            return Refusal(
                "unsupported-model",
                f"SGLang has no class for {_NO_CLASS[part.family]} ({part.family} layers)",
            )
    name = model.architecture
    own = any(part.kind in (Kind.STATE, Kind.COMPRESSED, Kind.INDEXER) for part in parts)
    if name is not None and name not in SERVED and own:
        return Refusal("unsupported-model", f"SGLang 0.5.23 has no class for {name}")
    return None
