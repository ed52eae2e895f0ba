"""Which layers attention is computed over: where their keys and values lie, and how they are read."""

from __future__ import annotations

from kvplan.engines.tensors.base import Component, GroupKind, Layout, View
from kvplan.engines.tensors.parts import element_bytes
from kvplan.record import record, replace

FLOATS = {"bfloat16": 9, "float16": 12, "float32": 24, "float8_e4m3fn": 9, "float8_e5m2": 9}
"""Element types that attention reads → -log2 of the unit roundoff of the type that it computes in."""
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
KEYS = ("k", "latent")


@record()
class Heads:
    """Where keys and values lie. rope: the second part of a latent's key; value None: the latent."""

    key: tuple[View, Component]
    value: tuple[View, Component] | None
    rope: tuple[View, Component] | None = None

    @property
    def view(self) -> View:
        return self.key[0]

    def kind(self, layout: Layout) -> str:
        """MHA, GQA, MQA or MLA, and what its window is."""
        group = layout.groups[self.view.group]
        if self.value is None:
            name = "MLA"
        elif self.view.heads == 1:
            name = "MQA"
        else:
            name = "GQA" if layout.num_attention_heads > self.view.heads else "MHA"
        word = {GroupKind.WINDOW: " window", GroupKind.CHUNK: " chunk"}.get(group.kind, "")
        return f"{name}{word} {group.window:,}" if word else name


def probes(layout: Layout) -> list[Heads]:
    """One layer of each kind: other widths, element types, strides or windows are other kinds."""
    found: dict[tuple[object, ...], Heads] = {}
    by_layer: dict[tuple[int, int], list[View]] = {}
    for view in layout.views:
        if layout.groups[view.group].kind is not GroupKind.CROSS:
            by_layer.setdefault((view.layer, view.group), []).append(view)
    for views in by_layer.values():
        parts = {component.name: (view, component) for view in views for component in view.components}
        key = next((parts[name] for name in KEYS if name in parts), None)
        value, rope = parts.get("v"), parts.get("rope_key")
        own = [part for part in (key, value, rope) if part is not None]
        if key is None or any(part[1].dtype not in FLOATS for part in own):
            continue
        if value is None and rope is None:
            continue
        heads = Heads(key, value, rope)
        kind = (
            heads.kind(layout),
            *((replace(view, name="", layer=0, allocation=0, offset=0, group=0), part) for view, part in own),
        )
        found.setdefault(kind, heads)
    return list(found.values())


def width_of(component: Component) -> int:
    """Numbers of one head."""
    return component.bytes // element_bytes(component.dtype)


def scale_of(component: Component) -> float:
    """The power of two that brings 8 standard deviations into an fp8 type's range."""
    largest = LARGEST.get(component.dtype)
    if largest is None:
        return 1.0
    exponent = 0
    while largest * 2.0**exponent < 8.0:
        exponent += 1
    while largest * 2.0 ** (exponent - 1) >= 8.0:
        exponent -= 1
    return 2.0**exponent
