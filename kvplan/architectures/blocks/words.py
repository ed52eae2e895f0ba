"""Layers by the words of a list: which word is attention, one tuple of tensors for each word."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.blocks.parts import Tensors
from kvplan.architectures.config.view import ConfigView

ATTENTION_WORDS = ("attention", "full_attention")


def layer_words(view: ConfigView, *keys: str) -> list[str] | None:
    """The list of layer kinds under the first of these keys, checked against the number of layers."""
    words = view.sequence(*keys)
    if words is None:
        return None
    if len(words) != int(view.num_layers()):
        raise view.refuse(keys[0], f"{len(words)} entries for {view.num_layers()} layers")
    return [str(word) for word in words]


def by_word(words: list[str], make: Callable[[str], Tensors]) -> tuple[Tensors, ...]:
    """Each kind of layer made once."""
    made = {word: make(word) for word in dict.fromkeys(words)}
    return tuple(made[word] for word in words)
