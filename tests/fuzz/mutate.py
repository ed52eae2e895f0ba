"""Bending data: values that no one writes in places where someone reads."""

from __future__ import annotations

import copy
import json
import math
from random import Random
from typing import Any

NUMBERS = (
    0, 1, -1, 2, 3, 7, 15, 64, 1000, 4096, 4097, 10**6, 2**31 - 1, 2**31, 2**53, 10**18, 10**30, -(10**9),
    0.5,
    1.5, -0.0, 1e-300, 1e308, math.inf, -math.inf, True, False,
)  # fmt: skip
TEXTS = (
    "", "0", "8", "auto", "x", "\x1b[31m", "\u202ex", "a\0b", "../..", "9" * 400, "full_attention", "none",
    "llama",
    "mamba", "1e999", "null", "é" * 50, "\n", "-", "hf:a/b", "🙂",
)  # fmt: skip
CONTROL = frozenset(
    [*map(chr, range(32)), *map(chr, range(127, 160)), *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e"]
) - {"\n", "\t"}


def value(random: Random, depth: int = 0) -> Any:
    """A value of JSON that is seldom right."""
    kind = random.randrange(8 if depth < 3 else 6)
    if kind < 4:
        return random.choice(NUMBERS)
    if kind == 4:
        return random.choice(TEXTS)
    if kind == 5:
        return None
    if kind == 6:
        return [value(random, depth + 1) for _ in range(random.choice((0, 1, 2, 3, 33, 40)))]
    return {random.choice(TEXTS): value(random, depth + 1) for _ in range(random.randrange(4))}


def near(random: Random, old: Any) -> Any:
    """Something like the value that was there: one more, twice, its negative, a list of it, its text."""
    if isinstance(old, bool) or old is None:
        return random.choice((True, False, None, 0, 1, "true"))
    if isinstance(old, (int, float)):
        steps = (old + 1, old - 1, -old, old * 2, old * 1000, old / 2, float(old))
        return random.choice((*steps, str(old), [old]))
    if isinstance(old, list) and old:
        return random.choice((old[:-1], old * 2, old[::-1], old[0], [old], [*old, value(random)]))
    if isinstance(old, str):
        return random.choice((old.upper(), old + "x", old[:-1], [old], old * 20, "\x1b[2J" + old))
    return value(random)


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value."""
    found = [at] if at else []
    if isinstance(data, dict):
        entries = list(data.items())
    else:
        entries = list(enumerate(data)) if isinstance(data, list) else []
    for key, inner in entries:
        found += places(inner, (*at, key))
    return found


def bent(random: Random, data: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """One to four changes: a value, a key less, a key of another config."""
    made: dict[str, Any] = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        paths = places(made)
        if not paths:
            break
        path = random.choice(paths)
        holder: Any = made
        for key in path[:-1]:
            holder = holder[key]
        action = random.randrange(10)
        if action < 4:
            holder[path[-1]] = value(random)
        elif action < 7:
            holder[path[-1]] = near(random, holder[path[-1]])
        elif action < 8 and isinstance(holder, dict):
            del holder[path[-1]]
        else:
            other = random.choice(others)
            key = random.choice(list(other))
            made[key] = copy.deepcopy(other[key])
    return made


def bent_bytes(random: Random, data: bytes) -> bytes:
    """Bytes changed, cut, doubled, or with an eight-byte number that means a size."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        if not made:
            break
        at = random.randrange(len(made))
        action = random.randrange(8)
        if action == 0:
            made[at] = random.randrange(256)
        elif action == 1:
            del made[at : at + random.choice((1, 2, 8, 100))]
        elif action == 2:
            made[at:at] = made[at : at + random.choice((1, 10, 100))]
        elif action == 3:
            del made[at:]
        elif action == 4:
            number = random.choice((0, 1, 2**16, 2**31, 2**32, 2**60, 2**63, 2**64 - 1))
            made[at : at + 8] = number.to_bytes(8, "little")
        elif action == 5:
            made[at:at] = random.choice(TEXTS).encode("utf-8", "replace")
        elif action == 6:
            made[at:at] = json.dumps(value(random)).encode()
        else:
            made[at:at] = bytes(random.randrange(256) for _ in range(random.choice((1, 4, 40))))
    return bytes(made)


def bent_lines(random: Random, text: str, keys: list[str]) -> str:
    """Lines of YAML swapped, doubled, dropped, with other values and other keys."""
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2, 4))):
        if not lines:
            break
        at = random.randrange(len(lines))
        head, colon, _ = lines[at].partition(":")
        action = random.randrange(7)
        if action < 3 and colon:
            lines[at] = f"{head}: {json.dumps(value(random))}"
        elif action == 3:
            del lines[at]
        elif action == 4:
            lines.insert(at, random.choice(lines))
        elif action == 5:
            lines.insert(at, f"{random.choice(keys)}: {json.dumps(value(random))}")
        else:
            lines[at] = lines[at] + random.choice(
                ("#", ":", " {", " [1", "\t", " &a", " *a", "!!x", "\u202e")
            )
    return "\n".join(lines) + "\n"
