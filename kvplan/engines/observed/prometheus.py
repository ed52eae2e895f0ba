"""The Prometheus text format, as far as an engine's gauges and counters need it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvplan.record import record

MAX_LABELS = 300
_LINE = re.compile(r"\s*([A-Za-z_:][\w:]{0,199})\s*(\{)?", re.ASCII)
_LABEL = re.compile(r'\s*([A-Za-z_]\w{0,199})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\})?', re.ASCII)
_NOTHING_MORE = re.compile(r"\s*\}")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@record()
class Sample:
    """One line: ``name{label="x"} 1.5``. text is the value as printed."""

    name: str
    labels: Mapping[str, str]
    text: str

    @property
    def value(self) -> Fraction | None:
        """The value; None for NaN, infinities and what is no number."""
        return number(self.text)


def samples(body: bytes, prefixes: tuple[str, ...]) -> Iterator[Sample]:
    """The samples whose names start so; a colon in a prefix also stands for an underscore.

    Lines that are no samples are skipped.
    """
    wanted = tuple(
        prefix.encode() for prefix in (*prefixes, *(prefix.replace(":", "_") for prefix in prefixes))
    )
    for line in body.splitlines():
        stripped = line.strip()
        if stripped.startswith(wanted):
            found = _sample(stripped.decode("utf-8", "replace"))
            if found is not None:
                yield found


def number(text: str) -> Fraction | None:
    """A printed float as the fraction its digits say; None where there is none."""
    if len(text) > 60:
        return None
    try:
        # float first: it turns 1e999999999 into infinity, which as a fraction would fill the memory.
        return Fraction(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def _sample(line: str) -> Sample | None:
    head = _LINE.match(line)
    if head is None:
        return None
    at = head.end()
    labels: dict[str, str] = {}
    while head[2] and len(labels) <= MAX_LABELS:
        label = _LABEL.match(line, at)
        if label is None:
            end = _NOTHING_MORE.match(line, at)
            if end is None:
                return None
            at = end.end()
            break
        labels[label[1]] = re.sub(r"\\[\\n\"]", lambda match: _ESCAPES[match[0]], label[2])
        at = label.end()
        if label[3] == "}":
            break
    words = line[at : at + 200].split()
    return Sample(head[1], labels, words[0]) if words else None
