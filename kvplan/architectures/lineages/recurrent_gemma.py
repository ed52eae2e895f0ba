"""RecurrentGemma: RG-LRU beside local attention.

Source: huggingface/transformers 5.23.0 models/recurrent_gemma. vLLM has no class for it any more; matrices
are divided by heads and widths as engines divide every decoder's.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import attention, even, keyed, linear, mlp, norms, vector, whole
from kvplan.architectures.blocks.plain import heads_of, hidden_size
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import RgLru, SlidingWindow
from kvplan.model import Layer


def recurrent_gemma_layers(view: ConfigView) -> list[Layer]:
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


def recurrent_gemma_tensors(view: ConfigView) -> Decoder:
    """RG-LRU blocks with gates in blocks of a head each, and attention; perceptrons of half the width."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    heads = heads_of(view)
    lru = int(view.optional_integer("lru_width") or hidden)
    wide, number = even("lru_width", lru), even("num_attention_heads", heads.count)
    block = whole("block width", lru // heads.count)
    path = "temporal_block"
    recurrent = linear(f"{path}.linear_y", wide, model, bias=True)
    recurrent += linear(f"{path}.linear_x", wide, model, bias=True)
    recurrent += linear(f"{path}.linear_out", model, wide, bias=True)
    recurrent += vector(f"{path}.conv_1d", wide, keyed(view, "conv1d_width"))
    recurrent += vector(f"{path}.conv_1d.bias", wide) + vector(f"{path}.rg_lru.recurrent_param", wide)
    for gate in ("input_gate", "recurrent_gate"):
        recurrent += vector(f"{path}.rg_lru.{gate}_weight", number, block, block)
        recurrent += vector(f"{path}.rg_lru.{gate}_bias", number, block)
    mixers = {
        "recurrent": recurrent,
        "attention": attention(heads, hidden, qkv_bias=bool(view.get("attention_bias")), o_bias=True),
    }
    rest = mlp("mlp_block", hidden, int(view.integer("intermediate_size")) // 2, bias=True)
    rest += norms(("temporal_pre_norm", "channel_pre_norm"), model)
    words = view.sequence("block_types") or ["recurrent", "recurrent", "attention"]
    kinds = [str(words[index % len(words)]) for index in range(int(view.num_layers()))]
    for kind in kinds:
        if kind not in mixers:
            raise view.refuse("block_types", f"unknown layer type {kind[:40]!r}")
    return Decoder(Frame(final_norm="model.final_norm"), tuple(mixers[kind] + rest for kind in kinds))


lineage("recurrent_gemma", layers=recurrent_gemma_layers, tensors=recurrent_gemma_tensors)
