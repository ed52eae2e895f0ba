"""Tensors outside the layers: embeddings, final norm, output head, and their pipeline stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.architectures.blocks.parts import RMS, Tensors, embedding, norm, vector, whole
from kvplan.architectures.config.view import ConfigView
from kvplan.record import field, record
from kvplan.weights.inventory import Block, Place, Placed, Role

Flag = bool | str | tuple[str, ...] | Callable[[ConfigView], bool]
"""A yes or no: itself, a config key, any of several keys, or computed."""


def holds(view: ConfigView, flag: Flag) -> bool:
    """The value of a Flag in this config; a missing key means no."""
    if isinstance(flag, bool):
        return flag
    if callable(flag):
        return flag(view)
    return any(bool(view.get(key)) for key in ((flag,) if isinstance(flag, str) else flag))


def _at(place: Place, tensors: Tensors) -> list[Placed]:
    return [Placed(place, tensor) for tensor in tensors]


@record()
class Frame:
    """Names and places of what is outside the layers.

    everywhere: the engine makes embedding, final norm and head on every pipeline stage (many of vLLM's
    model files do). embed_everywhere, head_everywhere: only that one. A tied head is the embedding
    itself; where the embedding is split by stage the last stage holds it too.
    """

    layers: str = "model.layers"
    embed: str = "model.embed_tokens"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    norm: str = RMS
    tied: Flag = "tie_word_embeddings"
    head_bias: Flag = False
    positions: tuple[str, str, int] | None = None
    everywhere: bool = False
    embed_everywhere: bool = False
    head_everywhere: bool = False
    vocabulary: tuple[str, ...] = ("vocab_size",)
    embed_width: tuple[str, ...] = ()
    final_norm_if: Flag = True
    width: tuple[str, ...] = ("hidden_size", "n_embd", "d_model")
    extra: Callable[[ConfigView], Sequence[Placed]] = field(default=lambda view: ())

    def ends(self, view: ConfigView, wrapper_ties: bool | None = None) -> list[Placed]:
        """Everything outside the layers, in the order of the forward pass.

        wrapper_ties: what a wrapper's own tie_word_embeddings says, which overrides the text part's.
        """
        hidden, vocabulary = int(view.integer(*self.width)), int(view.integer(*self.vocabulary))
        tied = holds(view, self.tied)
        if wrapper_ties is not None and self.tied == "tie_word_embeddings":
            tied = wrapper_ties
        always = self.everywhere
        embed_place = Place.TIED if tied else Place.FIRST
        if always or self.embed_everywhere:
            embed_place = Place.EVERY
        table = int(view.integer(*self.embed_width)) if self.embed_width else hidden
        made = [Placed(embed_place, embedding(self.embed, vocabulary, table))]
        if self.positions is not None:
            name, key, beside = self.positions
            rows = whole(key, int(view.integer(key)) + beside)
            made += _at(embed_place, vector(name, rows, whole("hidden_size", hidden)))
        made += self.extra(view)
        last = Place.EVERY if always else Place.LAST
        if holds(view, self.final_norm_if):
            made += _at(last, norm(self.final_norm, whole("hidden_size", hidden), kind=self.norm))
        if not tied:
            head = Place.EVERY if always or self.head_everywhere else Place.LAST
            made.append(Placed(head, embedding(self.head, vocabulary, table, Role.HEAD)))
        if holds(view, self.head_bias):
            rows = embedding(self.head, vocabulary, 1).rows[0]
            made += _at(last, vector(f"{self.head}.bias", rows))
        return made


at = _at


def blocks(path: str, layers: Sequence[Tensors]) -> tuple[Block, ...]:
    """One block a layer; equal layers share one tuple, which makes counting them cheap."""
    seen: dict[Tensors, Tensors] = {}
    return tuple(
        Block(f"{path}.{index}", seen.setdefault(tensors, tensors)) for index, tensors in enumerate(layers)
    )
