"""The order of a card's layers as a short text: ``10 (5 sliding_window, full_attention), 2 sliding_window``.

    pattern = item {"," item}
    item    = [count] name | [count] "(" pattern ")"

A count without one is 1. ``expand`` gives runs of names, ``shorten`` writes a short such text.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import KvplanError
from kvplan.later import regex

MAX_LAYERS = 4096
MAX_DEPTH = 8
_TOKEN = regex(r"\s*(?:(\d{1,9})|([A-Za-z_][\w.+-]*)|([(),]))")
_LONGEST_PERIOD = 24

Runs = list[tuple[str, int]]


def expand(pattern: str) -> Runs:
    """Runs of (name, count), neighbours with one name merged. Raises KvplanError(bad-pattern)."""
    tokens = _tokens(pattern)
    runs, end = _items(pattern, tokens, 0, 0)
    if end != len(tokens):
        raise _bad(pattern, f"`{tokens[end]}` is one too many")
    return runs


def shorten(names: Sequence[str]) -> str:
    """The text of a layer sequence; ``expand`` reads it back."""
    runs: Runs = []
    for name in names:
        _push(runs, name, 1)
    pieces: list[str] = []
    at = 0
    while at < len(runs):
        period, repeats = _best_period(runs, at)
        if repeats > 1:
            inner = ", ".join(_item(name, count) for name, count in runs[at : at + period])
            pieces.append(f"{repeats} ({inner})")
            at += period * repeats
        else:
            pieces.append(_item(*runs[at]))
            at += 1
    return ", ".join(pieces)


def _item(name: str, count: int) -> str:
    return name if count == 1 else f"{count} {name}"


def _best_period(runs: Runs, at: int) -> tuple[int, int]:
    """The period (in runs) whose repetition saves most from here, and how often it occurs."""
    best, saved = (1, 1), 0
    for period in range(2, min(_LONGEST_PERIOD, (len(runs) - at) // 2) + 1):
        block = runs[at : at + period]
        repeats = 1
        while runs[at + repeats * period : at + (repeats + 1) * period] == block:
            repeats += 1
        if (repeats - 1) * period > saved:
            best, saved = (period, repeats), (repeats - 1) * period
    return best


def _push(runs: Runs, name: str, count: int) -> None:
    if runs and runs[-1][0] == name:
        runs[-1] = (name, runs[-1][1] + count)
    else:
        runs.append((name, count))


def _tokens(pattern: str) -> list[str]:
    tokens: list[str] = []
    at, text = 0, pattern.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _bad(pattern, f"`{text[at : at + 20].strip()}` is neither a count, a name nor a bracket")
        tokens.append(match[1] or match[2] or match[3])
        at = match.end()
        if len(tokens) > 4 * MAX_LAYERS:
            raise _bad(pattern, "it is too long")
    return tokens


def _items(pattern: str, tokens: list[str], at: int, depth: int) -> tuple[Runs, int]:
    if depth > MAX_DEPTH:
        raise _bad(pattern, f"more than {MAX_DEPTH} brackets inside one another")
    runs: Runs = []
    while True:
        count = 1
        if at < len(tokens) and tokens[at].isdigit():
            count = int(tokens[at])
            at += 1
        if at >= len(tokens) or tokens[at] in "),":
            raise _bad(pattern, "a name of a kind is missing")
        if tokens[at] == "(":
            inner, at = _items(pattern, tokens, at + 1, depth + 1)
            if at >= len(tokens) or tokens[at] != ")":
                raise _bad(pattern, "a bracket is not closed")
        else:
            inner = [(tokens[at], 1)]
        at += 1
        # Checked before the repetition is written out: a pattern cannot ask for much memory.
        if count < 1 or count * sum(many for _, many in inner) > MAX_LAYERS:
            raise _bad(pattern, f"a count lies in 1 … {MAX_LAYERS:,} layers")
        if len(inner) == 1:
            _push(runs, inner[0][0], inner[0][1] * count)
        else:
            for name, many in inner * count:
                _push(runs, name, many)
        if sum(many for _, many in runs) > MAX_LAYERS:
            raise _bad(pattern, f"more than {MAX_LAYERS:,} layers")
        if at >= len(tokens) or tokens[at] != ",":
            return runs, at
        at += 1


def _bad(pattern: str, why: str) -> KvplanError:
    shown = pattern if len(pattern) <= 60 else pattern[:57] + "…"
    return KvplanError(
        "bad-pattern",
        f"`{shown}` is not an order of layers: {why}",
        help="write, for example, 10 (5 window, full), 2 window",
    )
