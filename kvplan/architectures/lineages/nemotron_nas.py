"""Nemotron-NAS and DeciLM: what every layer has is listed in the config.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/nemotron_nas.py; Deci/DeciLM-7B
configuration_decilm.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.blocks.custom import entries, width_per_head
from kvplan.architectures.blocks.decoder import num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Heads, Tensors, attention, mlp, norm, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.config.custom_types import VLLM_MODELS, CustomType
from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, NoCache, Part, SlidingWindow
from kvplan.model import Layer
from kvplan.record import Json


def nemotron_nas_layers(view: ConfigView) -> list[Layer]:
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


def _nas_part(view: ConfigView, attention: Json, where: str) -> Part:
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


def deci_layers(view: ConfigView) -> list[Layer]:
    """DeciLM: num_key_value_heads_per_layer. Source: Deci/DeciLM-7B configuration_decilm.py."""
    count = view.num_layers()
    heads = entries(view, "num_key_value_heads_per_layer", count)
    width = width_per_head(view)
    where = f"{view.path}num_key_value_heads_per_layer"
    return [Layer((FullAttention(check_integer(kv, where), width),)) for kv in heads]


def nemotron_nas_tensors(view: ConfigView) -> Decoder:
    """Puzzle: each block says how many query heads share a K and V head and how wide its perceptron is.

    The width is 2/3 × ffn_mult × hidden_size, rounded up to a multiple of 256.
    """
    hidden, count = hidden_size(view), int(num_heads(view))
    width, model = hidden // count, whole("hidden_size", hidden)
    layers = []
    for index, block in enumerate(view.sequence("block_configs") or ()):
        where = f"block_configs[{index}]"
        attn, ffn = (block.get(key) if isinstance(block, Mapping) else None for key in ("attention", "ffn"))
        if not isinstance(attn, Mapping) or not isinstance(ffn, Mapping):
            raise view.refuse(where, "no attention or ffn object")
        if attn.get("replace_with_linear") or ffn.get("replace_with_linear") or attn.get("sparsify"):
            raise view.refuse(where, "the weights of a replaced or sparsified block are not known")
        made: Tensors = ()
        if not attn.get("no_op"):
            group = check_integer(
                attn.get("n_heads_in_group"), f"{where}.attention.n_heads_in_group", 1, count
            )
            heads = Heads(count, count // group, width, width)
            made += attention(heads, hidden) + norm("input_layernorm", model)
        if not ffn.get("no_op"):
            times = ffn.get("ffn_mult")
            if isinstance(times, bool) or not isinstance(times, (int, float)) or not 0 < times < 1000:
                raise view.refuse(f"{where}.ffn.ffn_mult", f"{times!r} is not a factor")
            wide = -(-int(2 * times * hidden / 3) // 256) * 256
            made += mlp("mlp", hidden, wide) + norm("post_attention_layernorm", model)
        layers.append(made)
    if len(layers) != int(view.num_layers()):
        raise view.refuse("block_configs", f"{len(layers)} entries for {view.num_layers()} layers")
    return Decoder(Frame(), tuple(layers))


lineage(
    "nemotron-nas",
    reads=CustomType(VLLM_MODELS + "nemotron_nas.py"),
    layers=nemotron_nas_layers,
    tensors=nemotron_nas_tensors,
)
lineage("deci", reads=CustomType("Deci/DeciLM-7B configuration_decilm.py"), layers=deci_layers)
