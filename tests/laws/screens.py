"""What screens recommend: the lines that begin with ``help:``, ``next:`` and ``look:``."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from kvplan.cli.quick import parse
from tests.laws.doors import Ran, ran
from tests.laws.questions import Asked


class Recommended(NamedTuple):
    """One line. words: the command that it comes to; asked: that of the screen."""

    label: str
    text: str
    words: list[str]
    asked: list[str]


def lines_of(screen: str, label: str) -> list[str]:
    """The lines of a label, with what was wrapped below them."""
    found: list[str] = []
    open_ = False
    for row in screen.splitlines():
        text = row.strip()
        if re.match(r"[a-z]+: ", text):
            open_ = text.startswith(f"{label}: ")
            if open_:
                found.append(text.removeprefix(f"{label}: ").strip())
        elif open_ and row.startswith("    "):
            found[-1] += " " + text
        else:
            open_ = False
    return found


def recommended(shown: Ran, words: list[str]) -> Iterator[Recommended]:
    """Everything that a screen recommends; of help, options alone: they are added to the command as it was
    typed."""
    for text in lines_of(shown.out, "help"):
        if text.startswith("-"):
            yield Recommended("help", text, [*words, *shlex.split(text.partition(": ")[0])], words)
    for label in ("next", "look"):
        for text in lines_of(shown.out, label):
            program, *rest = shlex.split(text)
            assert program == "kvplan", text
            yield Recommended(label, text, rest, words)


def forms(asked: Asked, chance: random.Random) -> list[list[str]]:
    """The question's own command, and one of another view."""
    options = asked.options
    others = (
        asked.asking(gpu=f"{options['gpu']},h200").words,
        asked.asking(tokens=f"{options['tokens']},2048").words,
        asked.asking(tokens=f"{options['tokens']}:3,1000:2", requests=None).words,
        asked.asking(gpu=None).words,
        [*asked.words, "-v"],
        [*asked.words, "--show", "least"],
        [*asked.words, "--show", "lengths"],
    )
    return [["size", *asked.words], ["size", *chance.choice(others)]]


def wrong_of(line: Recommended, *, whole: bool) -> str | None:
    """Why a recommended command is not what it should be. whole: ``plan`` is run too, which searches long;
    else it is only parsed."""
    if parse(line.words, {}) is None:
        return f"{line.label}: {line.text} is not understood"
    if line.words[0] == "plan" and not whole:
        return None
    again = ran(*line.words)
    allowed = (0,) if line.label == "help" else (0, 1)
    if line.label == "next" and again.code == 2 and again.out and "--gpu" not in line.asked:
        return None  # nobody named a GPU yet, and what its pool is for these weights is not known
    return None if again.code in allowed else f"{line.label}: {line.text} ends with {again.code}: {again.err}"
