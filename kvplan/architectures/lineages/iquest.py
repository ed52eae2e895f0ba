"""IQuest-Coder's loop model: every layer runs several times, and each turn stores keys and values of its own.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/iquest_loopcoder.py; sgl-project/sglang 0.5.23
python/sglang/srt/models/iquest_loopcoder.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Tensors, attention, even, linear, mlp, norms, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, SlidingWindow
from kvplan.model import Layer

MAX_LOOPS = 64


def loop_layers(view: ConfigView) -> list[Layer]:
    """The first turn of a layer keeps every token, each later one loop_window_size of them.

    Heads are hidden_size // num_attention_heads wide, whatever head_dim says.
    """
    turns = view.optional_integer("loop_num", default=2, highest=MAX_LOOPS) or 2
    kv, width = num_kv_heads(view), _width(view)
    later = SlidingWindow(kv, width, view.optional_integer("loop_window_size", default=64) or 64)
    return [Layer((FullAttention(kv, width), *[later] * (int(turns) - 1)))] * view.num_layers()


def _width(view: ConfigView) -> int:
    return derived(view.integer("hidden_size") // num_heads(view), "hidden_size // num_attention_heads")


def loop_tensors(view: ConfigView) -> Decoder:
    """Llama's layers without biases, and a gate a layer that mixes the turns."""
    hidden = hidden_size(view)
    own = view.with_values({"head_dim": int(_width(view))})
    layer = attention(heads_of(own), hidden)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")))
    layer += norms(TWO_NORMS, whole("hidden_size", hidden)) + _gate(own)
    return Decoder(Frame(everywhere=True), (layer,) * int(view.num_layers()))


def _gate(view: ConfigView) -> Tensors:
    heads = heads_of(view)
    count = even("num_attention_heads", heads.count)
    return linear("gate_projections", count, whole("head_dim", heads.width), bias=True)


lineage(
    "iquestloopcoder",
    reads=CustomType("vllm-project/vllm 0.33 vllm/model_executor/models/iquest_loopcoder.py"),
    layers=loop_layers,
    tensors=loop_tensors,
)
