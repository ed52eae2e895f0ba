"""Refusals: workloads that no scheduler could serve, with the request's number, and unknown names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kvplan.errors import KvplanError, did_you_mean
from kvplan.plans.arrival import Arrival


def never_fits(number: int, tokens: int, blocks: int) -> KvplanError:
    """vLLM would wait, or preempt it again and again, for ever (vllm-project/vllm issue 52530)."""
    return KvplanError(
        "request-never-fits",
        f"request {number} of {tokens} tokens never fits into {blocks} blocks: vLLM would wait for ever",
        help="give more blocks, or a smaller max_model_len, which refuses such requests",
    )


def check_arrivals(arrivals: Sequence[Arrival], wide: int) -> None:
    """Raise KvplanError for the first row that is no request, or comes before the one ahead of it."""
    if not _whole(wide) or wide < 1:
        raise KvplanError(
            "bad-trace", f"an identity stands for {wide!r} tokens", help="give a whole number of at least 1"
        )
    last = 0
    for number, row in enumerate(arrivals):
        at_ns, prompt, answer = row.at_ns, row.prompt, row.answer
        if not (_whole(at_ns) and _whole(prompt) and _whole(answer) and _whole(row.priority)):
            raise _bad(
                number, "has a number that is not whole", "give times in ns and tokens as whole numbers"
            )
        if at_ns < last:
            was = f"arrives at {at_ns} ns, before {last} ns"
            raise _bad(number, was, "sort the requests by their time; the first may come at 0")
        if prompt < 1 or answer < 1:
            raise _bad(
                number, f"has a prompt of {prompt} and an answer of {answer} tokens",
                "leave it out: an engine takes no request without a token of each",
            )  # fmt: skip
        last = at_ns


def _whole(number: object) -> bool:
    return type(number) is int


def _bad(number: int, what: str, remedy: str) -> KvplanError:
    return KvplanError("bad-trace", f"request {number} {what}", help=remedy)


def unknown(what: str, name: str, names: Collection[str]) -> KvplanError:
    """An eviction or a router that there is not."""
    near = did_you_mean(name, names)
    return KvplanError(
        f"bad-{what}", f"{what} {name!r} is unknown",
        help=f"did you mean {near}?" if near else f"use one of {', '.join(names)}",
    )  # fmt: skip
