"""RWKV 4 to 7: a state for each head instead of a cache.

Sources: huggingface/transformers 5.23.0 models/rwkv; RWKV/rwkv-5-world-3b and rwkv-6-world-1b6 modeling
files; fla-org/flash-linear-attention fla/models/rwkv7.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_layer
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import LAYER, Tensors, even, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import Rwkv4, Rwkv5
from kvplan.model import Layer


def rwkv5_layers(view: ConfigView) -> list[Layer]:
    """RWKV-5 and 6: attention_hidden_size // head_size heads of head_size.

    Source: Peng et al., Eagle and Finch (arXiv 2404.05892); RWKV/rwkv-5-world-3b modeling_rwkv5.py.
    """
    hidden = view.integer("hidden_size")
    inner = view.optional_integer("attention_hidden_size") or hidden
    size = view.integer("head_size")
    heads = derived(int(inner) // int(size) or 1, "attention_hidden_size // head_size")
    return every_layer(view, Rwkv5(hidden, heads, size), "num_hidden_layers")


def rwkv7_layers(view: ConfigView) -> list[Layer]:
    """RWKV-7: hidden_size // head_dim heads of head_dim.

    Source: Peng et al., Goose (arXiv 2503.14456); fla-org/flash-linear-attention fla/models/rwkv7.
    """
    for key in ("attn", "value_dim"):
        if view.get(key):
            raise view.refuse(key, "hybrid layers and value widths of their own are not known")
    hidden, size = view.integer("hidden_size"), view.integer("head_dim")
    heads = derived(int(hidden) // int(size) or 1, "hidden_size // head_dim")
    return every_layer(view, Rwkv5(hidden, heads, size), "num_hidden_layers")


def rwkv_layers(view: ConfigView) -> list[Layer]:
    hidden = view.integer("hidden_size")
    return [
        Layer((Rwkv4(hidden, view.optional_integer("attention_hidden_size") or hidden),))
    ] * view.num_layers()


def rwkv_tensors(view: ConfigView) -> Decoder:
    """RWKV-4: time mixing over attention_hidden_size, channel mixing over intermediate_size."""
    hidden = hidden_size(view)
    model, inner = (
        whole("hidden_size", hidden),
        even("attention_hidden_size", int(view.optional_integer("attention_hidden_size") or hidden)),
    )
    layer: Tensors = ()
    for name in ("time_decay", "time_first"):
        layer += vector(f"attention.{name}", inner)
    for name in ("attention.time_mix_key", "attention.time_mix_value", "attention.time_mix_receptance"):
        layer += vector(name, model)
    for name in ("key", "value", "receptance"):
        layer += linear(f"attention.{name}", inner, model)
    layer += linear("attention.output", model, inner)
    layer += vector("feed_forward.time_mix_key", model) + vector("feed_forward.time_mix_receptance", model)
    wide = even("intermediate_size", int(view.optional_integer("intermediate_size") or 4 * hidden))
    layer += linear("feed_forward.key", wide, model) + linear("feed_forward.value", model, wide)
    layer += linear("feed_forward.receptance", model, model) + norms(("ln1", "ln2"), model, LAYER)
    first = layer + norm("pre_ln", model, kind=LAYER)
    frame = Frame(
        layers="rwkv.blocks", embed="rwkv.embeddings", final_norm="rwkv.ln_out", head="head", norm=LAYER
    )
    return Decoder(frame, (first,) + (layer,) * (int(view.num_layers()) - 1))


lineage("rwkv", layers=rwkv_layers, tensors=rwkv_tensors)
lineage(
    "rwkv5",
    reads=CustomType("RWKV/rwkv-5-world-3b modeling_rwkv5.py", defaults={"head_size": 64}),
    layers=rwkv5_layers,
)
lineage(
    "rwkv6",
    reads=CustomType("RWKV/rwkv-6-world-1b6 modeling_rwkv6.py", defaults={"head_size": 64}),
    layers=rwkv5_layers,
)
lineage(
    "rwkv7",
    reads=CustomType("fla-org/flash-linear-attention fla/models/rwkv7/configuration_rwkv7.py"),
    layers=rwkv7_layers,
)
