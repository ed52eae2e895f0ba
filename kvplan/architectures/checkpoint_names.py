"""The words of a checkpoint's name: which model it is, and how its weights are stored."""

from __future__ import annotations

from kvplan.later import regex

_STORED = regex(
    r"(nv|mx)?fp\d+|int\d+|bf16|f?bgemm|awq|gptq|dynamic|block|quantized(\.\w+)?|w\d+a\d+|meta|nvidia|hf"
)
"""Words that say how weights are stored, or who published them."""


def model_words(name: str) -> list[str]:
    """The words of a name that say which model it is, in lower case."""
    words = name.rpartition("/")[2].split("-")
    return [word.lower() for word in words if not _STORED.fullmatch(word.lower())]
