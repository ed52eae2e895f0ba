"""The tensors of multi-token-prediction layers, which an engine loads with a speculative method.

Made of the lineages' rows and of the model's own layers: a prediction layer has the tensors of the last of
the model's layers that keeps the same cache. Embedding and output head are the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.blocks.parts import Tensors, embedding, even, linear, mlp, norms, vector, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.config.drafts import Drafts
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import Forward, Joins, Project
from kvplan.architectures.registry import Decoder
from kvplan.families import Kind
from kvplan.model import Layer
from kvplan.weights.inventory import Block, Role, Tensor
from kvplan.weights.parts import Part, part_of

_FORWARD = (Part.DENSE, Part.SHARED)


def draft_blocks(
    view: ConfigView, decoder: Decoder, layers: Sequence[Layer], drafts: Drafts
) -> tuple[Block, ...]:
    """One block for each prediction layer, and one for what they share; empty where they are not described.

    layers: the model's own, as its cache is read: one a block of tensors, or several.
    """
    rule, joins = drafts.rule, drafts.rule.joins
    if rule.unknown or (rule.pattern and not drafts.letters):
        return ()
    if not decoder.layers or len(layers) % len(decoder.layers):
        return ()
    made: list[Tensors] = []
    for step in range(drafts.count):
        here = _step(view, decoder, layers, drafts, step)
        if here is None:
            return ()
        if not joins.once:
            here[0] += joined(view, joins)[:-1]
            here[-1] += joined(view, joins)[-1:]
        if rule.own_head:
            here[-1] += (_head(view),)
        made += here
    first, frame = len(decoder.layers), decoder.frame.layers
    blocks = [
        Block(rule.path.format(layers=frame, n=first + index, i=index), tensors)
        for index, tensors in enumerate(made)
    ]
    if joins.once:
        blocks.insert(0, Block(rule.path.partition(".")[0], joined(view, joins)))
    return tuple(blocks)


def _step(
    view: ConfigView, decoder: Decoder, layers: Sequence[Layer], drafts: Drafts, step: int
) -> list[Tensors] | None:
    """The blocks of one prediction step; None where the model has no layer like one of them."""
    if not drafts.letters:
        alike = _alike(decoder, layers, drafts, drafts.layers[step])
        return None if alike is None else [_forward(view, alike, drafts.rule.forward)]
    found: list[Tensors] = []
    for letter in drafts.letters:
        alike = _by_letter(decoder, layers, letter)
        if alike is None:
            return None
        found.append(alike)
    return found


def _alike(decoder: Decoder, layers: Sequence[Layer], drafts: Drafts, like: Layer) -> Tensors | None:
    """The tensors of the last layer with this cache, less those that prediction layers lack."""
    if drafts.rule.window_only:
        found = decoder.layers[-1]
    else:
        at = [place for place, layer in enumerate(layers) if layer == like]
        if not at:
            return None
        found = decoder.layers[at[-1] // (len(layers) // len(decoder.layers))]
    return tuple(one for one in found if not any(word in f".{one.name}." for word in drafts.rule.without))


def _by_letter(decoder: Decoder, layers: Sequence[Layer], letter: str) -> Tensors | None:
    """The last block of a kind: ``*`` attention, ``E`` experts."""

    def fits(place: int) -> bool:
        if letter == "*":
            return any(part.kind is Kind.FULL for part in layers[place].parts)
        return letter == "E" and any(one.role is Role.EXPERT for one in decoder.layers[place])

    at = [place for place in range(len(layers)) if fits(place)]
    return decoder.layers[at[-1]] if at else None


def _forward(view: ConfigView, tensors: Tensors, forward: Forward) -> Tensors:
    """The layer with the prediction layer's own feed-forward part."""
    if forward is Forward.LIKE:
        return tensors
    kept = tuple(
        one for one in tensors if one.role is not Role.EXPERT and part_of(one.name, one.role) not in _FORWARD
    )
    return kept + mlp("mlp", hidden_size(view), int(view.integer("ffn_hidden_size", "intermediate_size")))


def joined(view: ConfigView, joins: Joins) -> Tensors:
    """Norms of embedding and hidden state, the projection of both, and the last norm (the last tensor)."""
    model = whole("hidden_size", hidden_size(view))
    both = (whole("embedding and hidden state", 2 // len(joins.projections)), model)
    made: Tensors = ()
    for name in joins.projections:
        if joins.project is Project.PLAIN:
            made += vector(name, model, *both)
        else:
            out = even("hidden_size", model.value) if joins.project is Project.DIVIDED else model
            made += linear(name, out, both)
    if joins.streams:
        count = int(view.integer("hc_mult"))
        made += vector("hc_head_fn", whole("hc_mult", count), whole("hc_mult", count), model, dtype="float32")
        made += vector("hc_head_base", whole("hc_mult", count), dtype="float32")
        made += vector("hc_head_scale", whole("one", 1), dtype="float32")
    more = joins.more(view) if joins.more is not None else ()
    return made + more + norms(joins.norms, model)


def _head(view: ConfigView) -> Tensor:
    return embedding("shared_head.head", int(view.integer("vocab_size")), hidden_size(view), Role.HEAD)
