"""HRM: two stacks that run again and again.

Source: huggingface/transformers 5.23.0 models/hrm_text.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, one_kind
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import Heads, attention, even, linear, mlp, vector, whole
from kvplan.architectures.blocks.plain import BIAS, NONE, hidden_size, unshared_heads
from kvplan.architectures.blocks.recipe import Recipe
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Place


def _hrm_layers(view: ConfigView) -> int:
    """Each pass over a stack caches anew: layers a stack * H_cycles * (L_cycles + 1).

    A file that has num_layers_per_stack states the multiplied number as num_hidden_layers already.
    """
    count = view.num_layers()
    if view.optional_integer("num_layers_per_stack") is not None:
        return count
    passes = view.integer("H_cycles") * (view.integer("L_cycles") + 1)
    if count * passes > 4096:
        raise view.refuse("H_cycles", f"{count * passes:,} cached layers")
    return derived(count * passes, "num_hidden_layers * H_cycles * (L_cycles + 1)")


def hrm_text_tensors(view: ConfigView) -> Decoder:
    """Two stacks of layers that run again and again: cache for every pass, weights once.

    The layers of both stacks stand outside the layers that a pipeline divides, which a recurrence forbids.
    """
    hidden, bias = hidden_size(view), view.flag(BIAS)
    heads, model = unshared_heads(view), whole("hidden_size", hidden)
    width = int(view.optional_integer("head_dim") or heads.width)
    layer = attention(Heads(heads.count, heads.count, width, width), hidden, qkv_bias=bias, o_bias=bias)
    gate = (even("num_attention_heads", heads.count), whole("head_dim", width))
    layer += linear("self_attn.gate_proj", gate, model, bias=bias)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    passes = int(view.num_layers())
    stack = view.optional_integer("num_layers_per_stack")
    if stack is None:
        stack = passes
        passes = stack * int(view.integer("H_cycles")) * (int(view.integer("L_cycles")) + 1)
    once = 2 * int(stack)
    frame = Frame(norm=NONE, extra=lambda _: at(Place.EVERY, vector("model.z_L_init", model)))
    return Decoder(frame, (layer,) * once + ((),) * (passes - once))


lineage("hrm_text", layers=Recipe(ATTENTION, one_kind, count=_hrm_layers), tensors=hrm_text_tensors)
