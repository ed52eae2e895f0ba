"""Why something did not run, as one short line of a receipt: the innermost cause, without paths."""

from __future__ import annotations

from kvplan.later import regex

LONGEST = 100
_PATH = regex(r"""(?<![\w.])(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^\s'",;:()\[\]]+(?::\d+)?""")
_ADDRESS = regex(r"(?:\bat )?\b0x[0-9a-fA-F]+\b")


def reason_of(error: BaseException) -> str:
    """The class of the innermost cause and the first line of its message that says something.

    A compiler wraps what stopped it: torch's Inductor in ``inner_exception``, others in ``__cause__``;
    Triton's message begins with the source and has the reason as ``error_message``.
    """
    inner = _innermost(error)
    told = getattr(inner, "error_message", None)
    line = _line(told if isinstance(told, str) and told else str(inner))
    name = type(inner).__name__
    return _cut(f"{name}: {line}" if line else name)


def _innermost(error: BaseException) -> BaseException:
    seen = {id(error)}
    while True:
        inner = getattr(error, "inner_exception", None)
        if not isinstance(inner, BaseException):
            inner = error.__cause__
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner


def _line(message: str) -> str:
    """The first line with a word in it, its paths and addresses left out."""
    for line in message.splitlines():
        kept = _ADDRESS.sub("", _PATH.sub("…", line))
        kept = " ".join(kept.split())
        if any(letter.isalpha() for letter in kept):
            return kept
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
