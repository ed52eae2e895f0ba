"""Recurrent types and short memories: RG-LRU, RWKV, xLSTM, short convolutions, lightning attention.

Sources: huggingface/transformers 5.23.0, models/*/configuration_*.py and the mixers' ``__init__``.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import ATTENTION, head_dim, num_heads, num_kv_heads, window
from kvplan.architectures.lineages.layers.recipe import (
    CONV,
    FULL,
    LINEAR,
    SLIDING,
    Parts,
    Recipe,
    by_index,
    every,
    index_list,
    nothing,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import LightningAttention, RgLru, Rwkv4, ShortConvolution, SlidingWindow, XLstm
from kvplan.model import Layer

# ------------------------------------------------------------------------------ RG-LRU, RWKV and xLSTM


@rule("recurrent_gemma")
def recurrent_gemma(view: ConfigView) -> list[Layer]:
    """block_types in turn; attention layers have a window of attention_window_size."""
    words = view.sequence("block_types") or ["recurrent", "recurrent", "attention"]
    for word in words:
        if word not in ("recurrent", "attention"):
            raise view.refuse("block_types", f"unknown layer type {str(word)[:40]!r}")
    width = view.optional_integer("lru_width") or view.integer("hidden_size")
    recurrent = Layer((RgLru(width, view.integer("conv1d_width")),))
    windowed = SlidingWindow(num_kv_heads(view), head_dim(view), window(view, "attention_window_size"))
    layers = {"recurrent": recurrent, "attention": Layer((windowed,))}
    return [layers[words[index % len(words)]] for index in range(view.num_layers())]


@rule("rwkv")
def rwkv(view: ConfigView) -> list[Layer]:
    hidden = view.integer("hidden_size")
    return [
        Layer((Rwkv4(hidden, view.optional_integer("attention_hidden_size") or hidden),))
    ] * view.num_layers()


def _rounded_share(view: ConfigView, factor: str, default: float) -> int:
    """hidden_size * factor, up to a multiple of 64 (models/xlstm/configuration_xlstm.py)."""
    share = view.get(factor, default=default)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1e6:
        raise view.refuse(factor, "is not a share of hidden_size")
    return int((view.integer("hidden_size") * share + 63) // 64 * 64)


@rule("xlstm")
def xlstm(view: ConfigView) -> list[Layer]:
    heads = view.integer("num_heads")
    part = XLstm(
        heads,
        derived(
            _rounded_share(view, "qk_dim_factor", 0.5) // heads, "hidden_size * qk_dim_factor // num_heads"
        ),
        derived(
            _rounded_share(view, "v_dim_factor", 1.0) // heads, "hidden_size * v_dim_factor // num_heads"
        ),
    )
    return [Layer((part,))] * view.num_layers()


# -------------------------------------------------------------------- short convolutions and lightning


def _conv(view: ConfigView) -> Parts:
    return (ShortConvolution(view.integer("hidden_size"), view.integer("conv_L_cache")),)


def _lfm2(view: ConfigView, count: int) -> list[str]:
    given = index_list(view, "full_attn_idxs")
    return [FULL if given is None or index in given else CONV for index in range(count)]


def _lfm2_moe(view: ConfigView, count: int) -> list[str]:
    raise view.refuse("layer_types", "is needed: the class has no pattern of its own")


_CONV_OR_ATTENTION = {**ATTENTION, CONV: _conv}
rule("lfm2")(Recipe(_CONV_OR_ATTENTION, _lfm2))
rule("lfm2_moe")(Recipe(_CONV_OR_ATTENTION, _lfm2_moe))
rule("lfm3")(
    Recipe(
        _CONV_OR_ATTENTION,
        by_index(lambda i, n: FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV),
    )
)


def _lightning(view: ConfigView) -> Parts:
    return (LightningAttention(num_heads(view), head_dim(view)),)


rule("minimax")(Recipe({**ATTENTION, LINEAR: _lightning, "mlp": nothing}, every(2, FULL, LINEAR)))
