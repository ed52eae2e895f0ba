"""``kvplan size MODEL -n 20 -t 2k,8k:5,32k:1``: requests of several lengths at once."""

from __future__ import annotations

from dataclasses import replace

from kvplan.api.suggestions import with_suggestions
from kvplan.cli.ask import typed
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import whole_number
from kvplan.cli.terminal import Answer
from kvplan.deployment.mix import Mix, Part, mixed
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.results import SCHEMA_VERSION
from kvplan.units import ceil_div, parse_tokens


def parts_of(text: str, requests: int | None) -> tuple[Part, ...]:
    """``2k,8k:5,32k:1`` of 20 requests: 14 of 2,048, 5 of 8,192, 1 of 32,768 tokens. A length without a
    number takes what the others leave; without ``requests`` it is one. Raises KvplanError(bad-mix)."""
    pieces = [piece.partition(":") for piece in text.split(",")]
    counts = [whole_number(number) if colon else None for _, colon, number in pieces]
    free, stated = counts.count(None), sum(count or 0 for count in counts)
    left = free if requests is None else requests - stated
    if left < free or (not free and left) or left % max(free, 1) or 0 in counts:
        raise KvplanError(
            "bad-mix",
            f"`{text}` names {stated:,} requests and {free} lengths without a number"
            + ("" if requests is None else f", of {requests:,}"),
            help="-n 20 -t 2k,8k:5,32k:1 is 14 of 2k, 5 of 8k and 1 of 32k",
        )
    each = left // max(free, 1)
    return tuple(
        Part(parse_tokens(length), each if count is None else count)
        for (length, _, _), count in zip(pieces, counts)
    )


def run(words: list[str], given: Given) -> Answer:
    """Whether the mix is held, and how many in its proportions are. Raises KvplanError(bad-usage)."""
    requests = text_of(given, "requests")
    number = None if requests is None else whole_number(requests)
    parts = parts_of(text_of(given, "tokens") or "", number)
    asked = typed(words, {**given, "tokens": None, "requests": None})
    if len(asked) > 1 or asked.plan or text_of(given, "show") is not None:
        raise KvplanError(
            "bad-usage",
            "a mix of lengths takes one model, one engine and one machine",
            help="a plan has its mix under `workload:`",
        )
    found = _with_suggestions(mixed(asked.first, parts))
    code = EXIT_OK if found.held_in(found.likely) else EXIT_NO
    if is_given(given, "json"):
        return Answer(data=_data(found), code=code)
    from kvplan.report.mix import mix_screen

    return Answer(mix_screen(found), code=code)


def _with_suggestions(found: Mix) -> Mix:
    """The mix with those suggestions of its refusal with which as many requests of the longest are held."""
    if found.result.refusal is None:
        return found
    one = found.longest.deployment
    load = replace(one.settings, requests=ceil_div(found.requests, one.pools))
    asked = replace(found.longest, deployment=replace(one, settings=load, requests=found.requests))
    return found._replace(longest=with_suggestions(asked))


def _data(found: Mix) -> dict[str, object]:
    def filled(name: str) -> dict[str, object]:
        one = getattr(found, name)
        share = None if one.share is None else round(float(one.share), 6)
        return {"share_of_pool": share, "most_requests": one.most, "fits": found.held_in(one)}

    return {
        "schema_version": SCHEMA_VERSION,
        "mix": [part._asdict() for part in found.parts],
        "likely": filled("likely"),
        "safe": filled("safe"),
        "max_num_seqs": found.limit,
        "result": found.result.model_dump(),
    }
