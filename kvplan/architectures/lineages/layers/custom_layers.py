"""Custom-code models whose layers differ: NAS blocks, heads by layer, windows, shared caches, states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.lineages.layers.custom import all_heads, uniform, width_per_head
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import (
    FullAttention,
    LightningAttention,
    Mamba1,
    NoCache,
    Part,
    Rwkv5,
    SharedKv,
    SlidingWindow,
)
from kvplan.model import Layer


def entries(view: ConfigView, key: str, count: int) -> list[Any]:
    """A list with one entry a layer."""
    values = view.sequence(key)
    if values is None:
        raise view.missing(key)
    if len(values) != count:
        raise view.refuse(key, f"{len(values)} entries for {count} layers")
    return values


@rule("nemotron-nas")
def nemotron_nas(view: ConfigView) -> list[Layer]:
    """Puzzle: each block says how many query heads share a K and V head, or that it has no attention.

    kv heads = num_attention_heads // n_heads_in_group; no_op and replace_with_linear blocks keep nothing;
    a window_length keeps the newest tokens and num_sink_tokens first ones.
    Source: vllm-project/vllm 0.32 vllm/model_executor/models/nemotron_nas.py; Bercovich et al., Puzzle
    (arXiv 2411.19146).
    """
    count = view.num_layers()
    blocks = entries(view, "block_configs", count)
    seen: dict[str, Layer] = {}
    layers = []
    for index, block in enumerate(blocks):
        where = f"block_configs[{index}]"
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            raise view.refuse(where, "no attention object")
        mark = repr(sorted((str(key), str(value)) for key, value in attention.items()))
        if mark not in seen:
            seen[mark] = Layer((_nas_part(view, attention, f"{where}.attention"),))
        layers.append(seen[mark])
    return layers


def _nas_part(view: ConfigView, attention: Mapping[str, Any], where: str) -> Part:
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return NoCache()
    if attention.get("sparsify"):
        raise view.refuse(f"{where}.sparsify", "the cache of a sparsified block is not known")
    heads = view.integer("num_attention_heads")
    group = check_integer(
        attention.get("n_heads_in_group"), f"{view.path}{where}.n_heads_in_group", 1, max(1, heads)
    )
    kv = derived(heads // group, "num_attention_heads // block_configs[].attention.n_heads_in_group")
    window, sinks = attention.get("window_length"), attention.get("num_sink_tokens")
    if window is None:
        return FullAttention(kv, width_per_head(view))
    return SlidingWindow(
        kv,
        width_per_head(view),
        check_integer(window, f"{view.path}{where}.window_length"),
        sink_tokens=check_integer(sinks or 0, f"{view.path}{where}.num_sink_tokens", 0),
    )


@rule("deci")
def deci(view: ConfigView) -> list[Layer]:
    """DeciLM: num_key_value_heads_per_layer. Source: Deci/DeciLM-7B configuration_decilm.py."""
    count = view.num_layers()
    heads = entries(view, "num_key_value_heads_per_layer", count)
    width = width_per_head(view)
    where = f"{view.path}num_key_value_heads_per_layer"
    return [Layer((FullAttention(check_integer(kv, where), width),)) for kv in heads]


@rule("openelm")
def openelm(view: ConfigView) -> list[Layer]:
    """OpenELM: every layer has its own number of KV heads, all of head_dim.

    Source: apple/OpenELM-270M configuration_openelm.py (num_kv_heads is written as a list).
    """
    count = view.num_layers("num_transformer_layers", "num_hidden_layers")
    width = view.integer("head_dim")
    where = f"{view.path}num_kv_heads"
    return [
        Layer((FullAttention(check_integer(kv, where), width),))
        for kv in entries(view, "num_kv_heads", count)
    ]


@rule("mimo_v2")
def mimo_v2(view: ConfigView) -> list[Layer]:
    """MiMo-V2: hybrid_layer_pattern 1 = windowed, with its own heads and widths; V narrower than K.

    Source: vllm-project/vllm 0.32 vllm/model_executor/models/mimo_v2.py.
    """
    pattern = entries(view, "hybrid_layer_pattern", view.num_layers())
    full = FullAttention(
        view.integer("num_key_value_heads"), width_per_head(view), view.optional_integer("v_head_dim")
    )
    parts: dict[int, Part] = {0: full}
    if 1 in pattern:
        parts[1] = SlidingWindow(
            view.integer("swa_num_key_value_heads"),
            view.integer("swa_head_dim"),
            view.integer("sliding_window_size", "sliding_window"),
            view.optional_integer("swa_v_head_dim"),
        )
    where = f"{view.path}hybrid_layer_pattern"
    return [Layer((parts[check_integer(kind, where, 0, 1)],)) for kind in pattern]


@rule("minimax_text_01", "minimax_m1")
def minimax_text_01(view: ConfigView) -> list[Layer]:
    """attn_type_list: 0 = lightning attention (one head_dim² matrix a head), 1 = softmax attention.

    Source: MiniMax-01 (arXiv 2501.08313); MiniMaxAI/MiniMax-Text-01 modeling_minimax_text_01.py.
    """
    kinds = entries(view, "attn_type_list", view.num_layers())
    width = width_per_head(view)
    kv = view.optional_integer("num_key_value_heads")
    parts: dict[int, Part] = {
        0: LightningAttention(view.integer("num_attention_heads"), width),
        1: FullAttention(kv if kv is not None else all_heads(view), width),
    }
    where = f"{view.path}attn_type_list"
    return [Layer((parts[check_integer(kind, where, 0, 1)],)) for kind in kinds]


@rule("phi4flash")
def phi4flash(view: ConfigView) -> list[Layer]:
    """SambaY: a Mamba and window half, one full-attention layer, then layers that read what was kept.

    With N layers: i % mb_per_layer == 0 is a Mamba-1 layer with a state for i ≤ N/2 and a gated memory
    unit without one above; the others are windowed below N/2, full at N/2 + 1, and above that cross
    layers over the same K and V.
    Source: Ren et al., SambaY (arXiv 2507.06607); microsoft/Phi-4-mini-flash-reasoning
    configuration_phi4flash.py, modeling_phi4flash.py.
    """
    count = view.num_layers()
    every = view.integer("mb_per_layer")
    half = count // 2
    if count % 4:
        raise view.refuse("num_hidden_layers", "SambaY needs a multiple of four")
    kv, width = view.integer("num_key_value_heads"), width_per_head(view)
    inner = view.integer("mamba_expand") * view.integer("hidden_size")
    mamba = Layer(
        (
            Mamba1(
                derived(inner, "mamba_expand * hidden_size"),
                view.integer("mamba_d_state"),
                view.integer("mamba_d_conv"),
            ),
        )
    )
    window = Layer((SlidingWindow(kv, width, view.integer("sliding_window")),))
    full, shared, gated = Layer((FullAttention(kv, width),)), Layer((SharedKv(),)), Layer((NoCache(),))
    layers = []
    for index in range(count):
        if index % every == 0:
            layers.append(mamba if index <= half else gated)
        elif index < half:
            layers.append(window)
        else:
            layers.append(full if index <= half + 1 else shared)
    return layers


@rule("rwkv5", "rwkv6")
def rwkv5(view: ConfigView) -> list[Layer]:
    """RWKV-5 and 6: attention_hidden_size // head_size heads of head_size.

    Source: Peng et al., Eagle and Finch (arXiv 2404.05892); RWKV/rwkv-5-world-3b modeling_rwkv5.py.
    """
    hidden = view.integer("hidden_size")
    inner = view.optional_integer("attention_hidden_size") or hidden
    size = view.integer("head_size")
    heads = derived(int(inner) // int(size) or 1, "attention_hidden_size // head_size")
    return uniform(view, Rwkv5(hidden, heads, size), "num_hidden_layers")


@rule("rwkv7")
def rwkv7(view: ConfigView) -> list[Layer]:
    """RWKV-7: hidden_size // head_dim heads of head_dim.

    Source: Peng et al., Goose (arXiv 2503.14456); fla-org/flash-linear-attention fla/models/rwkv7.
    """
    for key in ("attn", "value_dim"):
        if view.get(key):
            raise view.refuse(key, "hybrid layers and value widths of their own are not known")
    hidden, size = view.integer("hidden_size"), view.integer("head_dim")
    heads = derived(int(hidden) // int(size) or 1, "hidden_size // head_dim")
    return uniform(view, Rwkv5(hidden, heads, size), "num_hidden_layers")
