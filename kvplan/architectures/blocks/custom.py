"""Parts shared by custom-code decoders, and the reading of an unknown type."""

from __future__ import annotations

from typing import Any

from kvplan.architectures.blocks.decoder import window
from kvplan.architectures.blocks.recipe import CHUNKED, FULL, SLIDING, given_kinds, layers_of
from kvplan.architectures.config.plain import HEADS, KV_HEADS, LAYERS, WIDTHS, telltale_keys, two_meanings
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, FullAttention, Part, SlidingWindow
from kvplan.model import Layer


def every_layer(view: ConfigView, part: Part, *layer_keys: str) -> list[Layer]:
    """The same part in every layer."""
    return [Layer((part,))] * view.num_layers(*(layer_keys or LAYERS))


def width_per_head(view: ConfigView, *keys: str) -> int:
    """The head's width where a key states it, else width of the model // heads."""
    given = view.optional_integer(*(keys or ("head_dim",)))
    if given is not None:
        return given
    hidden, heads = view.integer(*WIDTHS), view.integer(*HEADS)
    width = hidden // heads
    if width == 0:
        raise KvplanError("bad-config", f"{view.path}{hidden} wide with {heads} heads: no head has a width")
    return derived(width, "hidden_size // num_attention_heads")


def every_head(view: ConfigView) -> int:
    return derived(
        int(view.integer(*HEADS)), "num_attention_heads (no KV heads stated: every head has its own)"
    )


def refuse_telltales(view: ConfigView, understood: tuple[str, ...] = ()) -> None:
    """A key that speaks against full attention in every layer is named and refused."""
    keys = telltale_keys(view.raw, {*view.spellings(), *understood})
    if keys:
        raise view.refuse(
            keys[0],
            "no rule for this key in this model type is known, and full attention everywhere is not assumed"
            + (f" (also: {', '.join(keys[1:6])})" if len(keys) > 1 else ""),
        )


EXPLICIT = ("layer_types", "sliding_window", "attention_chunk_size", "use_sliding_window")
"""Keys that say of each layer what it is: they can be read without knowing the class."""


def states_layers(view: ConfigView) -> bool:
    """Whether the config lists its layers one by one."""
    return isinstance(view.raw.get("layer_types"), list)


def unknown_decoder(view: ConfigView) -> list[Layer]:
    """An unknown model type whose keys are a plain decoder's, with nothing that speaks against it.

    A list of ``layer_types`` counts as it stands; a word in it that is not full, sliding or chunked attention
    is refused. Raises KvplanError(unknown-layer-type | missing-key) that names the key.
    """
    listed = states_layers(view)
    refuse_telltales(view, EXPLICIT if listed else ())
    twice = two_meanings(view.raw)
    if twice:
        raise view.refuse(twice[0], f"disagrees with {twice[1]}")
    heads, width = view.integer(*KV_HEADS), width_per_head(view)
    if not listed:
        return every_layer(view, FullAttention(heads, width))
    kinds = given_kinds(view, view.num_layers(*LAYERS), "layer_types") or []
    return layers_of(
        view,
        kinds,
        {
            FULL: lambda own: (FullAttention(heads, width),),
            SLIDING: lambda own: (SlidingWindow(heads, width, window(own)),),
            CHUNKED: lambda own: (ChunkedAttention(heads, width, window(own, "attention_chunk_size")),),
        },
    )


def entries(view: ConfigView, key: str, count: int) -> list[Any]:
    """A list with one entry a layer."""
    values = view.sequence(key)
    if values is None:
        raise view.missing(key)
    if len(values) != count:
        raise view.refuse(key, f"{len(values)} entries for {count} layers")
    return values
