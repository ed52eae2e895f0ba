"""Loads from a few numbers and a seed: arrivals even, Poisson, Gamma or Weibull; sessions; shared prefixes.

All chance comes from ``random.Random(seed).random()``, whose numbers Python keeps the same between versions,
so the same words give the same load everywhere. Times are those of an open load: a turn does not wait for the
answer before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import exp, log, sqrt
from pathlib import Path

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.traces.servegen import Client, read_clients
from kvplan.plans.arrival import Arrival
from kvplan.record import record
from kvplan.simulation.load.chance import BLOCK, gaps, normal
from kvplan.simulation.load.load import Load
from kvplan.simulation.time.stretches import Headed
from kvplan.units import SECOND

MOST_REQUESTS = 5_000_000
MOST_TOKENS = 10**7
ARRIVALS = ("poisson", "gamma", "weibull", "even")


@record()
class Asked:
    """The load to generate. requests: in all; rate: sessions that begin a second; input, output: mean tokens;
    input_cv, output_cv: their spread (lognormal; 0: all alike); prefix: what all prompts begin with."""

    requests: int = 1000
    rate: float = 1.0
    arrivals: str = "poisson"
    cv: float = 1.0
    """standard deviation of the gaps between arrivals over their mean, 1/rate (1: Poisson)"""
    input: int = 1000
    output: int = 200
    input_cv: float = 0.0
    output_cv: float = 0.0
    prefix: int = 0
    turns: int = 1
    """requests of a session; each prompt is the last one's prompt and answer with ``input`` new tokens"""
    think: float = 30.0
    """seconds from turn to turn"""
    seed: int = 1
    servegen: str = ""
    start: float = 0.0
    seconds: float = 600.0


_KINDS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("requests", "input", "output", "prefix", "turns", "seed"), int),
    **dict.fromkeys(("rate", "cv", "input_cv", "output_cv", "think"), float),
    **dict.fromkeys(("arrivals", "servegen"), str),
    **dict.fromkeys(("start", "seconds"), float),
}
_OF_CLIENTS = ("servegen", "start", "seconds", "rate", "seed")
_BOUNDS = {
    "requests": (1, MOST_REQUESTS), "rate": (1e-6, 1e6), "cv": (0.05, 20), "input": (1, MOST_TOKENS),
    "output": (1, MOST_TOKENS), "input_cv": (0, 10), "output_cv": (0, 10), "prefix": (0, MOST_TOKENS),
    "turns": (1, 1000), "think": (0, 1e6), "seed": (0, 2**63),
    "start": (0, 10**9), "seconds": (1, 1e6),
}  # fmt: skip


def asked_of(text: str) -> Asked:
    """``requests=1000,rate=4,input=2000``. Raises KvplanError(bad-load)."""
    found: dict[str, object] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        kind = _KINDS.get(key)
        if kind is None or not equals or key in found:
            near = did_you_mean(key, _KINDS)
            raise KvplanError(
                "bad-load", f"{part.strip()!r} says nothing of a load",
                help=f"did you mean {near}=?" if near and near != key else "keys: " + ", ".join(_KINDS),
            )  # fmt: skip
        try:
            number = kind(value)
        except ValueError:
            raise KvplanError("bad-load", f"{key} is {value[:40]!r}, not a number") from None
        low, high = _BOUNDS.get(key, (0, 0))
        if isinstance(number, (int, float)) and not low <= number <= high:
            raise KvplanError("bad-load", f"{key} is {value[:40]}: {low:,} to {high:,} can be generated")
        found[key] = number
    alien = next((key for key in found if "servegen" in found and key not in _OF_CLIENTS), None)
    if alien is not None:
        raise KvplanError(
            "bad-load", f"{alien} belongs to a load without clients",
            help="beside servegen: start, seconds, rate (a factor), seed; --first 1000 for so many requests",
        )  # fmt: skip
    if found.get("arrivals", "poisson") not in ARRIVALS:
        raise KvplanError(
            "bad-load", f"arrivals {found['arrivals']!r} are unknown", help="arrivals: " + ", ".join(ARRIVALS)
        )
    return Asked(**found)  # type: ignore[arg-type]


def generated(asked: Asked) -> Load:
    """The load."""
    if asked.servegen:
        return of_clients(read_clients(Path(asked.servegen)), asked)
    chance = random.Random(asked.seed).random
    gap = gaps(asked.arrivals, asked.cv, chance)
    rows: list[Arrival] = []
    head = range(asked.prefix // BLOCK)
    clock, fresh = 0.0, len(head)
    while len(rows) < asked.requests:
        before, first, at = asked.prefix, fresh, clock
        for _ in range(asked.turns):
            if len(rows) == asked.requests:
                break
            new = _length(asked.input, asked.input_cv, chance)
            answer = _length(asked.output, asked.output_cv, chance)
            prompt = min(before + new, MOST_TOKENS)
            whole = (prompt + answer) // BLOCK
            fresh = max(fresh, first + whole - len(head))
            rows.append(Arrival(round(at * SECOND), prompt, answer, _identities(head, first, whole)))
            before, at = prompt + answer, at + asked.think
        clock += gap() / asked.rate
    rows.sort(key=lambda one: one.at_ns)
    words = (
        f"{asked.arrivals}, cv {asked.cv:g}" if asked.arrivals not in ("poisson", "even") else asked.arrivals
    )
    return Load(tuple(rows), BLOCK, f"generated, seed {asked.seed}", words)


def _identities(head: range, first: int, count: int) -> Sequence[int]:
    """So many identities: those of the head, and consecutive ones from ``first`` on."""
    rest = range(first, first + max(0, count - len(head)))
    return Headed(head, rest) if rest and head else rest or head[:count]


def of_clients(clients: Sequence[Client], asked: Asked) -> Load:
    """Requests that ServeGen's clients send in ``seconds`` from ``start`` on, each with its own rate, spread
    and lengths; ``rate`` is a factor on all rates. Raises KvplanError(bad-load) where none sends anything
    then."""
    rows: list[Arrival] = []
    end = asked.start + asked.seconds
    for number, client in enumerate(clients):
        chance = random.Random(asked.seed * 1_000_003 + number).random
        for first, last, rate, cv, kind in client.windows:
            if last <= asked.start or first >= end:
                continue
            gap, at = gaps(kind, cv, chance), max(first, asked.start)
            while (at := at + gap() / (rate * asked.rate)) < min(last, end):
                inputs, outputs = client.lengths_at(at)
                rows.append(
                    Arrival(round((at - asked.start) * SECOND), inputs.at(chance()), outputs.at(chance()))
                )
                if len(rows) > MOST_REQUESTS:
                    raise KvplanError("bad-load", f"more than {MOST_REQUESTS:,} requests", help="seconds=600")
    if not rows:
        raise KvplanError(
            "bad-load", f"no client of {asked.servegen} sends anything in these {asked.seconds:g} s",
            help="start=43200,seconds=600: other hours",
        )  # fmt: skip
    rows.sort(key=lambda one: one.at_ns)
    name = Path(asked.servegen).name
    return Load(tuple(rows), 1, name, f"ServeGen, {len(clients)} clients, seed {asked.seed}")


def _length(mean: int, cv: float, chance: Callable[[], float]) -> int:
    """A lognormal length with this mean and cv."""
    if not cv:
        return mean
    variance = log(1 + cv**2)
    return max(1, min(MOST_TOKENS, round(mean * exp(sqrt(variance) * normal(chance) - variance / 2))))
