"""Latent attention: MLA, MLA with a token indexer (DSA), windowed MLA, and an indexer beside GQA.

Sources: huggingface/transformers 5.23.0, models/{deepseek_v2,deepseek_v3,deepseek_v32,glm_moe_dsa,
hy_v4,dots3_note,longcat_flash,mistral_large4,minimax_m3_vl}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import (
    ATTENTION,
    STRAY,
    head_dim,
    num_heads,
    num_kv_heads,
    one_kind,
    stray_window,
    window,
)
from kvplan.architectures.lineages.layers.recipe import (
    FULL,
    INDEXED,
    SLIDING,
    Parts,
    Recipe,
    all_of,
    index_list,
    nothing,
    rope_layers,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import (
    FullAttention,
    MultiHeadLatentAttention,
    SharedKv,
    SparseIndexer,
)


def mla(
    view: ConfigView, sliding_window: int | None = None, library_window: int | None = None
) -> MultiHeadLatentAttention:
    """kv_lora_rank + qk_rope_head_dim; heads and widths serve the expanded layout of older releases."""
    return MultiHeadLatentAttention(
        kv_lora_rank=view.integer("kv_lora_rank"),
        qk_rope_head_dim=view.integer("qk_rope_head_dim", lowest=0),
        num_heads=num_heads(view),
        qk_nope_head_dim=view.optional_integer("qk_nope_head_dim", default=0, lowest=0) or 0,
        v_head_dim=view.optional_integer("v_head_dim", default=0, lowest=0) or 0,
        sliding_window=sliding_window,
        library_window=library_window,
    )


def latent(view: ConfigView) -> Parts:
    return (mla(view),)


def sliding_latent(view: ConfigView) -> Parts:
    return (mla(view, window(view)),)


def stray_latent(view: ConfigView) -> Parts:
    return (mla(view, library_window=stray_window(view)),)


def indexed_latent(view: ConfigView) -> Parts:
    return (mla(view), SparseIndexer(view.integer("index_head_dim")))


MLA = {FULL: latent, STRAY: stray_latent, SLIDING: sliding_latent, "moe": nothing, "mlp": nothing}
DSA = {**MLA, INDEXED: indexed_latent}

rule("deepseek_v2", "deepseek_v3", "kimi_k2", "axk1", "youtu", "minicpm3", "mistral4", "glm4_moe_lite")(
    Recipe(MLA, one_kind)
)


def _longcat_layers(view: ConfigView) -> int:
    """Two attention blocks, each with a cache of its own, in every layer."""
    doubled = view.optional_integer("num_hidden_layers") if view.given("num_hidden_layers") else None
    if doubled is not None:
        return derived(doubled // 2 * 2, "num_hidden_layers (two attention blocks a layer)")
    return derived(2 * view.num_layers("num_layers"), "2 * num_layers (two attention blocks a layer)")


rule("longcat_flash")(Recipe(MLA, one_kind, count=_longcat_layers))


# ------------------------------------------------------------------------- which layers own an indexer


def indexer_types(view: ConfigView, count: int) -> list[str]:
    """ "full" (the layer has an indexer) or "shared" (it uses the one of an earlier layer).

    ``indexer_types``, else ``index_topk_pattern`` ("FSS…" or a list), else every index_topk_freq-th layer
    from index_skip_topk_offset - 1 on (models/glm_moe_dsa/configuration_glm_moe_dsa.py).
    """
    given = view.sequence("indexer_types")
    if given is not None:
        return _checked(view, "indexer_types", given, count)
    pattern = view.get("index_topk_pattern")
    if pattern is not None:
        words = {"F": "full", "S": "shared"}
        listed = [words.get(letter, letter) for letter in pattern] if isinstance(pattern, str) else None
        return _checked(
            view, "index_topk_pattern", listed or view.sequence("index_topk_pattern") or [], count
        )
    frequency = max(view.optional_integer("index_topk_freq", default=1, lowest=0) or 1, 1)
    offset = view.optional_integer("index_skip_topk_offset", default=2, lowest=0)
    first = 2 if offset is None else offset
    return ["shared" if max(index - first + 1, 0) % frequency else "full" for index in range(count)]


def _checked(view: ConfigView, key: str, words: Sequence[object], count: int) -> list[str]:
    unknown = [word for word in words if word not in ("full", "shared")]
    if unknown:
        raise view.refuse(key, f"{str(unknown[0])[:40]!r} is neither full nor shared")
    if len(words) < count:
        raise view.refuse(key, f"{len(words)} entries for {count} layers")
    return [str(word) for word in words[:count]]


def _hy_v4_indexers(view: ConfigView, count: int) -> list[str]:
    if view.sequence("indexer_types") is not None:
        return indexer_types(view, count)
    return ["full" if index == 0 or (index - 1) % 4 == 0 else "shared" for index in range(count)]


def without_indexer(view: ConfigView, kinds: list[str], types: list[str]) -> Mapping[int, Parts]:
    """The indexed layers that use another layer's indexer."""
    plain = latent(view)
    return {i: plain for i, kind in enumerate(kinds) if kind == INDEXED and types[i] == "shared"}


rule("deepseek_v32", "axk2")(Recipe(DSA, all_of(INDEXED)))
rule("glm_moe_dsa")(
    Recipe(
        DSA,
        all_of(INDEXED),
        sharing=lambda view, kinds: without_indexer(view, kinds, indexer_types(view, len(kinds))),
    )
)
rule("hy_v4")(
    Recipe(
        DSA,
        all_of(INDEXED),
        sharing=lambda view, kinds: without_indexer(view, kinds, _hy_v4_indexers(view, len(kinds))),
    )
)


def _mistral_large4_sharing(view: ConfigView, kinds: list[str]) -> Mapping[int, Parts]:
    """Layers that read an earlier layer's latent hold nothing, or index keys only."""
    count = len(kinds)
    types = indexer_types(view, count)
    sources = index_list(view, "kv_source_layers")
    if sources is not None and len(sources) != count:
        raise view.refuse("kv_source_layers", f"{len(sources)} entries for {count} layers")
    rope = rope_layers(view, count)
    shared: dict[int, Parts] = {
        index: latent(view if rope[index] else view.with_values({"qk_rope_head_dim": 0}))
        for index in without_indexer(view, kinds, types)
    }
    for index, source in enumerate(sources or range(count)):
        if source != index:
            own = () if types[index] == "shared" else (SparseIndexer(view.integer("index_head_dim")),)
            shared[index] = (SharedKv(), *own)
    return shared


def _without_rope(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    """Layers without rotary positions keep the latent only."""
    rope = rope_layers(view, len(kinds))
    return {index: {"qk_rope_head_dim": 0} for index in range(len(kinds)) if not rope[index]}


rule("mistral_large4_text")(
    Recipe(DSA, all_of(INDEXED), sharing=_mistral_large4_sharing, overrides=_without_rope)
)


# ----------------------------------------------------------------------------------- dots 3 (windowed)


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


rule("dots3_note_text")(
    Recipe(
        {FULL: latent, SLIDING: _dots3_sliding, INDEXED: _dots3_indexed},
        _dots3_pattern,
        adjust=_dots3_adjust,
        overrides=_dots3_overrides,
    )
)


# ------------------------------------------------------------------- MiniMax-M3: an indexer beside GQA


def _gqa_indexed(view: ConfigView) -> Parts:
    sparse = view.inner("sparse_attention_config")
    width = sparse.optional_integer("sparse_index_dim") or view.integer("index_head_dim")
    return (FullAttention(num_kv_heads(view), head_dim(view)), SparseIndexer(width))


def _minimax_m3(view: ConfigView, count: int) -> list[str]:
    frequency = index_list(view.inner("sparse_attention_config"), "sparse_attention_freq")
    if frequency is None:
        return [FULL] * count
    if len(frequency) != count:
        raise view.refuse(
            "sparse_attention_config.sparse_attention_freq", f"{len(frequency)} entries for {count} layers"
        )
    return ["minimax_m3_sparse" if sparse else FULL for sparse in frequency]


rule("minimax_m3_vl_text")(Recipe({**ATTENTION, "minimax_m3_sparse": _gqa_indexed}, _minimax_m3))
