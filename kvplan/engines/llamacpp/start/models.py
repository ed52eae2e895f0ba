"""llama.cpp's knowledge of model classes: those it converts, and those whose windows have a cache of their
own.

ggml-org/llama.cpp at 0c1e57098: ``ModelBase.register`` in conversion/*.py (text models and the wrappers whose
text part is one of them); ``swa_type`` in src/models/<architecture>.cpp.
"""

from __future__ import annotations

from kvplan.engines.supported import classes
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.results import Refusal

CONVERTED = frozenset(classes("llamacpp", "converts"))
# Names of config.json and of GGUF files, with underscores. Everywhere else (phi3, mistral, qwen2 and more)
# a window has no effect on the cache. Llama 4's chunks are a window of 8,192 whatever the config says.
WINDOWED = frozenset(
    """
    afmoe cohere2 cohere2_moe cohere2moe deepseek4 deepseek_ref deepseek_v4 dots3_note dots3_note_text
    dots3note exaone4 exaone4_5_text exaone_moe gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4
    gemma4_text gemma4_unified gemma4_unified_text gpt_oss granite_swa granitemoe_swa laguna lfm2 lfm2_moe
    lfm2moe llama4 llama4_text maple mellum mimo2 mimo_v2 mimo_v2_flash muse_glimmer muse_glimmer_text
    olmo2 olmo3 plamo3 smallthinker spark2_5 step35 step3p5 step3p7 step3p7_text
    """.split()
)
CHUNK = 8192
# The index cache of these is built as a plain cache of one head, so it has a V nobody reads
# (src/llama-kv-cache-msa.cpp; the other sparse models pass for MLA there).
INDEX_WITH_V = frozenset({"minimax_m3", "minimax_m3_vl_text"})
# src/models/t5.cpp computes cross attention's K and V anew from the encoder's output.
CROSS_WITHOUT_CACHE = frozenset({"t5", "mt5", "umt5"})
# src/llama-context.cpp turns flash attention off for these.
WITHOUT_FLASH = frozenset({"grok", "grok1", "grok_1"})
# conversion/kimi_linear.py writes no attention.value_length: llama.cpp takes hidden / heads for V's width.
VALUE_UNSAID = frozenset({"kimi_linear"})
# Families that no graph has.
_NOT_BUILT = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV 4",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
    "kv_convolution": "Inkling",
    "compressed_convolution": "Zaya",
}
_BUILT = frozenset(
    "full_attention sliding_window chunked_attention mla sparse_indexer compressed_attention cross_attention"
    " shared_kv no_cache mamba1 mamba2 gated_delta_net kda lightning_attention short_convolution rwkv5"
    " ngram_embedding".split()
)
"""Families whose cache kvplan knows in llama.cpp's graphs."""


def name_of(model: Model) -> str:
    """The model type with underscores: config.json writes gpt_oss, GGUF files gpt-oss."""
    return model.model_type.replace("-", "_")


def uses_flash(model: Model, asked: bool) -> bool:
    """Whether flash attention is on, where it was asked for or not."""
    return asked and name_of(model) not in WITHOUT_FLASH


def has_window_cache(model: Model) -> bool:
    """Whether window layers have a shorter cache than the others."""
    return name_of(model) in WINDOWED


def refusal_of(model: Model) -> Refusal | None:
    """A class that the converter does not take, or a layer that no graph computes."""
    families = {part.family for run in model.runs for part in run.layer.parts}
    for family, what in _NOT_BUILT.items():
        if family in families:
            return Refusal("unsupported-model", f"llama.cpp has no graph for {what} ({family} layers)")
    if unknown := sorted(families - _BUILT):
        raise KvplanError("unknown-rule", f"how llama.cpp keeps {', '.join(unknown)} layers is not known")
    if "cross_attention" in families and name_of(model) not in CROSS_WITHOUT_CACHE:
        what = model.architecture or model.model_type
        return Refusal("unsupported-model", f"{what} is an encoder-decoder model, and it has no graph for it")
    name = model.architecture
    # A config may write the class with its module (modeling_grove_moe.GroveMoeForCausalLM).
    if name is not None and name.rpartition(".")[2] not in CONVERTED:
        return Refusal("unsupported-model", f"llama.cpp's converter does not know {name}")
    return None
