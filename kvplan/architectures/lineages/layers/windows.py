"""Types that mix full attention with windows or chunks, and the pattern of each without ``layer_types``.

Sources: huggingface/transformers 5.23.0, models/*/configuration_*.py, ``__post_init__`` of each class.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import ATTENTION, head_dim, num_kv_heads, one_kind, window
from kvplan.architectures.lineages.layers.recipe import (
    CHUNKED,
    FULL,
    SLIDING,
    Parts,
    PartsOf,
    Pattern,
    Recipe,
    all_of,
    by_index,
    every,
    every_key,
    last_is_full,
    rope_layers,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import FullAttention, SlidingWindow


def with_window(size: PartsOf) -> dict[str, PartsOf]:
    """Attention layers whose windowed kind is made otherwise."""
    return {**ATTENTION, SLIDING: size}


def gated_window(view: ConfigView) -> int | None:
    """sliding_window, which counts only with use_sliding_window (Qwen)."""
    return view.optional_integer("sliding_window") if view.flag("use_sliding_window") else None


def _gated_sliding(view: ConfigView) -> Parts:
    size = gated_window(view)
    if size is None:
        raise view.refuse(
            "use_sliding_window", "is off or has no sliding_window, but layer_types has windowed layers"
        )
    return (SlidingWindow(num_kv_heads(view), head_dim(view), size),)


def _from_max_window_layers(view: ConfigView, count: int) -> list[str]:
    size = gated_window(view)
    return _windowed_from(view, count, size)


def _windowed_from(view: ConfigView, count: int, size: int | None) -> list[str]:
    first = view.optional_integer("max_window_layers", default=0, lowest=0) or 0
    return [SLIDING if size is not None and index >= first else FULL for index in range(count)]


rule(
    "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen2_5_omni_talker"
)(Recipe(with_window(_gated_sliding), _from_max_window_layers))  # fmt: skip


def _qwen2_moe(view: ConfigView, count: int) -> list[str]:
    first_full = view.optional_integer("max_window_layers", default=0, lowest=0) or 0
    on = view.flag("use_sliding_window")
    return [SLIDING if on and index % 2 == 0 and index < first_full else FULL for index in range(count)]


rule("qwen2_moe")(Recipe(with_window(_gated_sliding), _qwen2_moe))


def _qwen3_moe(view: ConfigView, count: int) -> list[str]:
    return [FULL if gated_window(view) is None else SLIDING] * count


# Windows on all layers or on none; max_window_layers is not read.
rule("qwen3_moe")(Recipe(with_window(_gated_sliding), _qwen3_moe))


def _dots1(view: ConfigView, count: int) -> list[str]:
    return _windowed_from(view, count, view.optional_integer("sliding_window"))


rule("dots1", "qwen3_omni_moe_talker_code_predictor")(Recipe(ATTENTION, _dots1))


# -------------------------------------------------------------------------------------- fixed patterns


def _smollm3(view: ConfigView, count: int) -> list[str]:
    windows = view.flag("use_sliding_window") and view.get("sliding_window") is not None
    return [SLIDING if windows and not rope else FULL for rope in rope_layers(view, count)]


def _llama4(view: ConfigView, count: int) -> list[str]:
    return [CHUNKED if rope else FULL for rope in rope_layers(view, count)]


def _exaone(view: ConfigView, count: int) -> list[str]:
    if view.get("sliding_window") is None:
        return [FULL] * count
    pattern = view.get("sliding_window_pattern")
    if isinstance(pattern, str):
        # "LLLG": local and global layers in turn, as older checkpoints write it.
        if not pattern or set(pattern) - set("LG"):
            raise view.refuse("sliding_window_pattern", f"{pattern[:40]!r} is not made of L and G")
        return [SLIDING if pattern[index % len(pattern)] == "L" else FULL for index in range(count)]
    return every_key("sliding_window_pattern", 4, SLIDING, FULL)(view, count)


def _cohere2_moe(view: ConfigView, count: int) -> list[str]:
    dense = min(view.optional_integer("first_k_dense_replace", default=0, lowest=0) or 0, count)
    first = every_key("prefix_dense_sliding_window_pattern", 1, SLIDING, FULL)(view, dense)
    return first + every_key("sliding_window_pattern", 4, SLIDING, FULL)(view, count - dense)


def _ministral(view: ConfigView, count: int) -> list[str]:
    return [FULL if view.get("sliding_window") is None else SLIDING] * count


PATTERNS: dict[str, Pattern] = {
    **dict.fromkeys(("gemma2", "vaultgemma", "gpt_oss"), every(2, SLIDING, FULL)),
    "cohere2": every_key("sliding_window_pattern", 4, SLIDING, FULL),
    "cohere2_moe": _cohere2_moe,
    "exaone4": _exaone,
    "exaone_moe": _exaone,
    "afmoe": every_key("global_attn_every_n_layers", 4, SLIDING, FULL),
    "olmo3": every(4, SLIDING, FULL),
    **dict.fromkeys(
        ("cwm", "granite_swa", "granitemoe_swa"), by_index(lambda i, n: SLIDING if i % 4 else FULL)
    ),
    "kolibri1": every(5, SLIDING, FULL),
    "flint": by_index(lambda i, n: FULL if i < 2 or i % 4 == 1 or i == n - 1 else SLIDING),
    **dict.fromkeys(
        ("muse_glimmer_text", "muse_spark_text"),
        by_index(lambda i, n: SLIDING if (n - 1 - i) % 4 else FULL),
    ),
    "smollm3": _smollm3,
    "llama4_text": _llama4,
    "ministral": _ministral,
    **dict.fromkeys(("laguna", "mellum", "cohere_compass_text"), all_of(FULL)),
}
for _model_type, _pattern in PATTERNS.items():
    rule(_model_type)(Recipe(ATTENTION, _pattern))

rule("beam")(Recipe(ATTENTION, by_index(lambda i, n: SLIDING if (i + 1) % 6 and i < n - 1 else FULL)))


# --------------------------------------------------------------------- windows that are said otherwise


def halved_window(view: ConfigView) -> int:
    """sliding_window // 2 + 1 where attention looks both ways (gemma3, gemma4)."""
    size = window(view)
    if view.get("use_bidirectional_attention") in (True, "all"):
        return derived(size // 2 + 1, "sliding_window // 2 + 1 (use_bidirectional_attention)")
    return size


def halved_sliding(view: ConfigView) -> Parts:
    return (SlidingWindow(num_kv_heads(view), head_dim(view), halved_window(view)),)


rule("gemma3_text")(
    Recipe(with_window(halved_sliding), every_key("sliding_window_pattern", 6, SLIDING, FULL))
)


def _half_local_attention(view: ConfigView) -> Parts:
    """local_attention spans both sides; a saved file also states the half, as sliding_window: it counts."""
    size = (
        window(view)
        if view.given("sliding_window")
        else derived(window(view, "local_attention") // 2, "local_attention // 2")
    )
    if size < 1:
        raise view.refuse("local_attention", "leaves no window")
    return (SlidingWindow(num_kv_heads(view), head_dim(view), size),)


def _modernbert_decoder(view: ConfigView, count: int) -> list[str]:
    period = view.optional_integer("global_attn_every_n_layers", default=3) or 3
    return [SLIDING if index % period else FULL for index in range(count)]


rule("modernbert-decoder")(Recipe(with_window(_half_local_attention), _modernbert_decoder))


def _mimo_full(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view), view.integer("v_head_dim")),)


def _mimo_sliding(view: ConfigView) -> Parts:
    """Windowed layers have twice the KV heads, a constant of the model's code (models/mimo_v2_flash).

    ``sliding_window_size`` counts the tokens before the current one in transformers, which adds it.
    """
    said = view.optional_integer("sliding_window_size")
    return (
        SlidingWindow(
            derived(2 * num_kv_heads(view), "2 * num_key_value_heads (windowed layers)"),
            head_dim(view),
            said or window(view),
            view.integer("v_head_dim"),
            library_window=None if said is None else derived(said + 1, "sliding_window_size + 1"),
        ),
    )


def _mimo_v2_flash(view: ConfigView, count: int) -> list[str]:
    return [FULL if index == 0 or (index + 1) % 6 == 0 else SLIDING for index in range(count)]


rule("mimo_v2_flash")(Recipe({FULL: _mimo_full, SLIDING: _mimo_sliding}, _mimo_v2_flash))


def _neomme_windows(view: ConfigView, kinds: list[str]) -> dict[int, dict[str, object]]:
    """Every other windowed layer has the long window (models/neomme)."""
    windowed = [index for index, kind in enumerate(kinds) if kind == SLIDING]
    long = view.integer("default_long_sliding_window")
    return {index: {"sliding_window": long} for index in windowed[1::2]}


rule("neomme")(
    Recipe(
        ATTENTION,
        by_index(lambda i, n: FULL if (i + 1) % 6 == 0 or i == n - 1 else SLIDING),
        overrides=_neomme_windows,
    )
)


def _without_draft_layers(view: ConfigView) -> ConfigView:
    """layer_types may end with entries of the multi-token-prediction layers."""
    given, count = view.sequence("layer_types"), view.num_layers()
    drafts = view.optional_integer("num_nextn_predict_layers", default=0, lowest=0) or 0
    if given is not None and len(given) == count + drafts:
        return view.with_values({"layer_types": given[:count]})
    return view


_STEP3P5 = Recipe(ATTENTION, all_of(FULL))
rule("step3p5")(lambda view: _STEP3P5(_without_draft_layers(view)))
rule("kyutai_speech_to_text")(Recipe(ATTENTION, one_kind))

__all__ = ["PATTERNS", "gated_window", "halved_sliding", "last_is_full", "with_window"]
