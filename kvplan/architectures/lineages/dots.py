"""dots.llm1 and dots3: experts; windowed and indexed latent attention.

Source: huggingface/transformers 5.23.0 models/{dots1,dots3_note}.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import (
    ROUTED,
    both_norms,
    dense_forward,
    indexer,
    latent,
    mla,
    mla_attention,
    routed_here,
)
from kvplan.architectures.blocks.moe import Moe, after_first, shared_by_count
from kvplan.architectures.blocks.parts import Tensors, even, keyed, linear, mlp, norm, whole
from kvplan.architectures.blocks.plain import BIAS, Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, INDEXED, SLIDING, Parts, Recipe, layer_settings
from kvplan.architectures.blocks.words import layer_words
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.qwen import windowed_from_key
from kvplan.architectures.prediction import NEW_LAYOUT, WINDOWED_KINDS, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import SparseIndexer


def _dots3_window(view: ConfigView) -> int:
    return view.optional_integer("sliding_window", "sliding_window_size") or derived(
        512, "512 (class default)"
    )


def _dots3_sliding(view: ConfigView) -> Parts:
    return (mla(view, _dots3_window(view)),)


def _dots3_indexed(view: ConfigView) -> Parts:
    return (mla(view), SparseIndexer(view.integer("index_head_dim"), float32_key=True))


def _dots3_pattern(view: ConfigView, count: int) -> list[str]:
    windows = view.flag("use_sliding_window", True)
    return [INDEXED if not windows or i < 2 or i % 4 == 1 else SLIDING for i in range(count)]


def _dots3_adjust(view: ConfigView, kinds: list[str]) -> list[str]:
    """Full and indexed are swapped to agree with use_dsa, which older files have."""
    given = view.get("use_dsa")
    if given is None and view.mapping("per_layer_config") is not None:
        return kinds
    old, new = (INDEXED, FULL) if given is not None and not view.flag("use_dsa") else (FULL, INDEXED)
    return [new if kind == old else kind for kind in kinds]


_DOTS3_SLIDING = {
    "num_attention_heads": 64,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}


def _dots3_overrides(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    """Windowed layers have ranks and widths of their own: the swa_ keys."""
    sizes = {
        key: int(view.optional_integer(f"swa_{key}", default=default) or default)
        for key, default in _DOTS3_SLIDING.items()
    }
    rope = view.optional_integer("swa_qk_rope_head_dim", lowest=0)
    own = {
        **sizes,
        "qk_rope_head_dim": sizes["head_dim"] - sizes["qk_nope_head_dim"] if rope is None else int(rope),
    }
    return {index: own for index, kind in enumerate(kinds) if kind == SLIDING}


_SWA = {
    "num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "qk_nope_head_dim": 192,
    "v_head_dim": 128, "head_dim": 256,
}  # fmt: skip


def _sliding(view: ConfigView) -> ConfigView:
    """The sizes of windowed layers: swa_ keys, as published, or the class's own."""
    sizes = {key: view.get(f"swa_{key}", default=value) for key, value in _SWA.items()}
    rope = view.get("swa_qk_rope_head_dim", default=sizes["head_dim"] - sizes["qk_nope_head_dim"])
    return view.with_values({**sizes, "qk_rope_head_dim": rope})


def dots3_note_tensors(view: ConfigView) -> Decoder:
    """Latent attention with a gate a head, an indexer in full layers, sizes of their own in windows."""
    count = int(view.num_layers())
    words = layer_words(view, "layer_types")
    if words is None:
        windows = view.flag("use_sliding_window", default=True)
        wide = [not windows or index < 2 or index % 4 == 1 for index in range(count)]
        words = ["full_attention" if full else "sliding_attention" for full in wide]
    indexed, table = view.flag("use_dsa", default=True), layer_settings(view, count) or {}
    model = whole("hidden_size", hidden_size(view))
    shared = int(view.integer("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"))
    shared *= int(view.integer("n_shared_experts"))

    @lru_cache(maxsize=8)
    def mixer(word: str, index: int) -> Tensors:
        sizes = view if word != "sliding_attention" else _sliding(view)
        sizes = sizes.with_values(table.get(index, {}))
        heads = even("num_attention_heads", int(num_heads(sizes)))
        made = mla_attention(sizes, bias=view.flag(BIAS)) + linear("self_attn.g_proj", heads, model)
        made += norm("self_attn.k_rope_only_layernorm", keyed(sizes, "qk_rope_head_dim"))
        is_indexed = word == "indexed_attention" or (word != "sliding_attention" and indexed)
        return made + (indexer(view) if is_indexed else ())

    sparse_moe = ROUTED.tensors(view.with_values({"n_shared_experts": 0}))
    sparse_moe += mlp("mlp.shared_experts", hidden_size(view), shared)
    around = both_norms(view)
    firsts = {word: words.index(word) for word in dict.fromkeys(words)}
    layers = tuple(
        mixer(word, firsts[word]) + (sparse_moe if routed_here(view, index) else dense_forward(view)) + around
        for index, word in enumerate(words)
    )
    return Decoder(Frame(), layers)


lineage(
    "dots1",
    layers=Recipe(ATTENTION, windowed_from_key),
    block=Plain(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
        moe=Moe(
            count=("n_routed_experts",),
            layer_is_sparse=after_first,
            shared=shared_by_count("n_shared_experts"),
        ),
    ),
)
lineage(
    "dots3_note_text",
    layers=Recipe(
        {FULL: latent, SLIDING: _dots3_sliding, INDEXED: _dots3_indexed},
        _dots3_pattern,
        adjust=_dots3_adjust,
        overrides=_dots3_overrides,
    ),
    tensors=dots3_note_tensors,
    prediction=Prediction(default=1, kinds=WINDOWED_KINDS, unknown=NEW_LAYOUT),
)
