"""Prompts on engines of their own: how many read prompts, how many make answers, and what travels between.

Both kinds of engines have the same settings, as `kvplan simulate --prefill-replicas` serves them; that run,
with the trace, is the proof: batches of several prompts, bursts and prefix hits are not in these formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from kvplan.errors import KvplanError
from kvplan.planning.levers.situation import Link, Seconds, Situation
from kvplan.planning.levers.tiers import PrefillTime
from kvplan.record import record

MOST_ENGINES = 4096


@record()
class Pools:
    """How a load is divided over engines that read prompts and engines that make answers."""

    prefill_replicas: int
    """engines that read prompts, with the likely times, as those that make answers"""
    slow_prefill_replicas: int
    """the same with the slow end; 0: no number of them keeps the target"""
    decode_replicas: int
    """engines that make answers"""
    gpus_per_replica: int
    gpus: int
    """of both kinds"""
    decode_requests: int
    """in flight on the engines that make answers"""
    transfer_bytes: int
    """cache of one mean prompt on all GPUs of an engine: what a request sends"""
    transfer_bytes_per_second: int
    """of the whole load"""
    link: str
    """between the two kinds: the slowest that the GPU's file or the fleet names"""
    ttft_seconds: float
    """of the longest prompt, on average, with the likely times"""
    ttft_high_seconds: float
    """with the slow end"""
    prompts_at_once: int
    """on one engine that reads prompts, until they have left it"""
    prompts_that_fit: int
    """in its pool"""


def decode_requests(rate: Fraction, answers: Fraction, tpot: Fraction) -> int:
    """Answers under way, by Little's law: arrivals a second · tokens · seconds a token, rounded up."""
    return max(1, ceil(rate * answers * tpot))


def pools_of(
    seen: Situation, links: Sequence[Link], prefill: PrefillTime, *, ttft: float, decode: int, gpus: int,
    ranks: int = 1,
) -> Pools:  # fmt: skip
    """seen: one engine that makes answers, under its part of the load; decode: how many of them; gpus: of
    one engine; ranks: of one engine that take requests of their own. Raises KvplanError(no-speed | no-link |
    too-slow)."""
    rate, load = seen.workload.requests_per_second, seen.workload
    assert rate is not None
    if not links:
        raise KvplanError(
            "no-link", "the GPU's file names no link to another engine", help="--fleet fleet.yaml"
        )
    link = min(links, key=lambda one: one.bytes_per_second)
    prompts = [(shape.weight, max(1, shape.input_tokens)) for shape in load.shapes]
    longest = max(tokens for _, tokens in prompts)
    times = {tokens: prefill(tokens) for _, tokens in prompts}
    known = {tokens: time for tokens, time in times.items() if time is not None}
    if len(known) < len(times):
        raise KvplanError("no-speed", "how long a prompt takes on this engine and GPU is not estimated")
    amount = seen.held_bytes(longest)
    sent = Seconds(*(link.seconds + amount / rate for rate in (link.bytes_per_second, link.high, link.low)))

    def engines(pick: str, travel: float) -> tuple[int, float, float]:
        each = [(weight, float(getattr(known[tokens], pick))) for weight, tokens in prompts]
        return _least(float(rate), each, float(getattr(known[longest], pick)), travel, ttft, ranks)

    likely, first, wait = engines("value", sent.value)
    try:
        slow = engines("high", sent.high)[0]
    except KvplanError:
        slow = 0
    mean = seen.held_bytes(seen.typical.input_tokens)
    stays = wait + known[longest].value + sent.value
    return Pools(
        likely, slow, decode, gpus, (likely + decode) * gpus, seen.requests * ranks * decode,
        transfer_bytes=int(mean * seen.copies),
        transfer_bytes_per_second=ceil(rate * int(mean * seen.copies)),
        link=link.name,
        ttft_seconds=first,
        ttft_high_seconds=wait + known[longest].high + sent.high,
        prompts_at_once=max(1, ceil(float(rate) / (likely * ranks) * stays)),
        prompts_that_fit=seen.usable_bytes // max(1, seen.held_bytes(longest)),
    )  # fmt: skip


def _least(
    rate: float,
    times: Sequence[tuple[int, float]],
    longest: float,
    travel: float,
    ttft: float,
    ranks: int = 1,
) -> tuple[int, float, float]:
    """(the least number P of engines, the TTFT there, the wait in it), on average. Raises
    KvplanError(too-slow).

        W    = λ/R · E[t²] / (2 · (1 − λ/R · E[t])),   λ/R · E[t] < 1,   R = P · ranks of an engine
        TTFT = W + t(longest prompt) + its cache over the link      (Pollaczek and Khinchine)

    Each rank reads one prompt after another and gets λ/R of the arrivals at random.
    """
    if longest + travel > ttft:
        raise KvplanError(
            "too-slow",
            f"the longest prompt alone takes {longest:.2f} s and {travel:.2f} s on the link: no number of"
            f" engines gives a first token within {ttft:g} s",
            help=f"--ttft {ceil((longest + travel) * 10) / 10:g}s",
        )
    whole = sum(weight for weight, _ in times)
    mean = sum(weight * time for weight, time in times) / whole
    square = sum(weight * time * time for weight, time in times) / whole
    for engines in range(max(1, ceil(rate * mean / ranks)), MOST_ENGINES + 1):
        each = rate / (engines * ranks)
        busy = each * mean
        if busy >= 1:
            continue
        wait = each * square / (2 * (1 - busy))
        if wait + longest + travel <= ttft:
            return engines, wait + longest + travel, wait
    raise KvplanError("too-slow", f"{MOST_ENGINES:,} engines do not read prompts that fast")
