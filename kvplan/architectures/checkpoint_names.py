"""The words of a checkpoint's name: which model it is, and how its weights are stored."""

from __future__ import annotations

import re

_STORED = re.compile(
    r"(nv|mx)?fp\d+|int\d+|bf16|f?bgemm|awq|gptq|dynamic|block|quantized(\.\w+)?|w\d+a\d+|meta|nvidia|hf"
)
"""Words that say how weights are stored, or who published them."""


def model_words(name: str) -> list[str]:
    """The words of a name that say which model it is, in lower case."""
    words = name.rpartition("/")[2].split("-")
    return [word.lower() for word in words if not _STORED.fullmatch(word.lower())]


TUNED = "instruct"
"""A word that a short name of a model leaves out: ``llama-3.1-405b`` for the checkpoint that is served."""


def is_of(name: str, other: str) -> bool:
    """Whether ``other`` is the model that ``name`` says, stored otherwise: to the word, but for `TUNED`, and
    for ``it``, which builds of Gemma leave out (nvidia/Gemma-4-26B-A4B-NVFP4)."""
    asked, words = model_words(name), model_words(other)
    return asked in (words, _without(words, TUNED)) or words == _without(asked, "it")


def _without(words: list[str], left: str) -> list[str]:
    return [word for word in words if word != left]


def stored_like(name: str, other: str) -> str | None:
    """The name that the maker of both would give to model ``name`` stored as ``other`` is; None for other
    makers."""
    maker, _, words = other.rpartition("/")
    own, _, plain = name.rpartition("/")
    how = [word for word in words.split("-") if _STORED.fullmatch(word.lower())]
    return f"{maker}/{'-'.join([plain, *how])}" if maker == own else None
