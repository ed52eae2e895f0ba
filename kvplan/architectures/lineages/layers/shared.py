"""Types whose layers read another layer's cache and whose layers differ in width: Gemma 3n and 4.

Sources: huggingface/transformers 5.23.0, models/{gemma3n,gemma4,diffusion_gemma,embedding_gemma2}.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import ATTENTION
from kvplan.architectures.lineages.layers.recipe import (
    FULL,
    SLIDING,
    Parts,
    Recipe,
    every,
    every_key,
    last_is_full,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.architectures.lineages.layers.windows import halved_sliding, with_window
from kvplan.families import SharedKv


def last_layers_share(view: ConfigView, kinds: list[str]) -> Mapping[int, Parts]:
    """The last num_kv_shared_layers layers hold nothing.

    Each kind among them needs an earlier layer of that kind, else the library refuses the config.
    """
    count = view.optional_integer("num_kv_shared_layers", default=0, lowest=0) or 0
    if count == 0:
        return {}
    own = kinds[: max(len(kinds) - count, 0)]
    lacking = sorted(set(kinds) - set(own))
    # A draft model in which every layer reads the target's cache has no layer of its own.
    if lacking and own:
        raise view.refuse("num_kv_shared_layers", f"no layer of kind {lacking[0]!r} keeps a cache to share")
    return {index: (SharedKv(),) for index in range(len(own), len(kinds))}


rule("gemma3n_text")(Recipe(ATTENTION, every(5, SLIDING, FULL), sharing=last_layers_share))


def _global_layers(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    """Full-attention layers have heads of global_head_dim; fewer KV heads where K serves as V.

    num_global_key_value_heads counts only with attention_k_eq_v (true where the class lacks the key).
    """
    own: dict[str, object] = {"head_dim": view.optional_integer("global_head_dim", default=512) or 512}
    heads = view.optional_integer("num_global_key_value_heads")
    if heads is not None and view.flag("attention_k_eq_v", True):
        own["num_key_value_heads"] = heads
    return {index: own for index, kind in enumerate(kinds) if kind == FULL}


_GEMMA4 = Recipe(
    with_window(halved_sliding),
    every(6, SLIDING, FULL),
    adjust=last_is_full,
    sharing=last_layers_share,
    overrides=_global_layers,
)
rule("gemma4_text", "gemma4_unified_text", "diffusion_gemma_text")(_GEMMA4)


def _embedding_globals(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    own: dict[str, object] = {
        "head_dim": view.optional_integer("global_head_dim", default=512) or 512,
        "num_key_value_heads": view.optional_integer("num_global_key_value_heads", default=1) or 1,
    }
    return {index: own for index, kind in enumerate(kinds) if kind == FULL}


rule("embedding_gemma2_text")(
    Recipe(
        ATTENTION,
        every_key("sliding_window_pattern", 6, SLIDING, FULL),
        adjust=last_is_full,
        overrides=_embedding_globals,
    )
)
