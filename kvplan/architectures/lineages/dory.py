"""Dory: layers of one block each, some of which run several times over.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/dory.py, vllm/transformers_utils/configs/dory.py;
huggingface/transformers 5.24.0 models/dory, whose layers are pairs of attention and a perceptron: its files
count both.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import Tensors, attention, even, linear, mlp, vector, whole
from kvplan.architectures.blocks.plain import heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, given_kinds, layers_of
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Place, Placed, Split

MAX_LOOPS = 64


def dory_layers(view: ConfigView) -> list[Layer]:
    """Layers between n_input_layers and n_output_layers run n_recurrent_loops times.

    Each turn stores keys and values of its own (recurrent_kv_cache_mode per_loop) or writes over those of
    the turn before (last_loop).
    """
    kinds = dory_kinds(view)
    layers = layers_of(view, kinds, {name: ATTENTION[name] for name in (FULL, SLIDING, "mlp")})
    first, last = _recurrent(view)
    turns = view.optional_integer("n_recurrent_loops", default=1, highest=MAX_LOOPS) or 1
    mode = view.get("recurrent_kv_cache_mode", default="per_loop")
    if mode not in ("per_loop", "last_loop"):
        raise view.refuse("recurrent_kv_cache_mode", "is neither per_loop nor last_loop")
    if mode == "last_loop" or turns == 1:
        return layers
    return [
        Layer(layer.parts * int(turns)) if first <= index < last and kinds[index] != "mlp" else layer
        for index, layer in enumerate(layers)
    ]


def dory_kinds(view: ConfigView) -> list[str]:
    """Without a list every second layer is a perceptron, and one attention in four is full."""
    count = view.num_layers()
    usual = ["mlp" if index % 2 else FULL if index % 8 == 6 else SLIDING for index in range(count)]
    return given_kinds(view, count, "layer_types") or usual


def _recurrent(view: ConfigView) -> tuple[int, int]:
    """First and last + 1 layer of those that run in turns."""
    count = int(view.num_layers())
    first = int(view.optional_integer("n_input_layers", default=0, lowest=0) or 0)
    after = int(view.optional_integer("n_output_layers", default=0, lowest=0) or 0)
    between = view.optional_integer("n_recurrent_layers", lowest=0)
    if first + after > count or (between is not None and first + int(between) + after != count):
        raise view.refuse("n_recurrent_layers", f"input, recurrent and output layers are not {count}")
    return first, count - after


def dory_tensors(view: ConfigView) -> Decoder:
    """Attention with an output gate and learnt scales, or a perceptron; no norms have weights."""
    hidden, heads = hidden_size(view), heads_of(view)
    model, wide = whole("hidden_size", hidden), int(view.integer("intermediate_size"))
    queries = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    own = attention(heads, hidden) + linear("self_attn.g_proj", queries, model)
    own += vector("mixer.sqk", *queries) + vector("mixer.s_gate", *queries) + vector("attn_alpha", model)
    inner = even("intermediate_size", wide)
    forward = mlp("mixer", hidden, wide) + vector("mixer.suv_gate", inner) + vector("mixer.suv_up", inner)
    forward += vector("mlp_alpha", model)

    @lru_cache(maxsize=3)
    def layer(kind: str) -> Tensors:
        return forward if kind == "mlp" else own

    frame = Frame(
        layers="backbone.layers",
        embed="backbone.embeddings",
        tied=False,
        final_norm_if=False,
        extra=_scale,
        everywhere=True,
    )
    return Decoder(frame, tuple(layer(kind) for kind in dory_kinds(view)))


def _scale(view: ConfigView) -> list[Placed]:
    rows = Dim("vocab_size", int(view.integer("vocab_size")), Split.WHOLE)
    return at(Place.EVERY, vector("lm_head.logit_scale", rows))


lineage(
    "dory",
    reads=CustomType(
        "vllm-project/vllm 0.33 vllm/transformers_utils/configs/dory.py",
        defaults={
            "num_hidden_layers": 72,
            "n_input_layers": 0,
            "n_output_layers": 0,
            "n_recurrent_loops": 1,
        },
    ),
    layers=dory_layers,
    tensors=dory_tensors,
)
