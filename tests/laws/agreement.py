"""Answers of two doors, and answers to two questions of which one is easier: where they disagree."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.results import SizeResult, Verdict
from tests.laws import doors, searches
from tests.laws.questions import Asked, at_the_edge

Door = Callable[[Asked, SizeResult, Path], "doors.Figures | None"]
DOORS: dict[str, Door] = {
    "size --json": doors.by_command,
    "size": doors.by_screen,
    "the page": doors.on_the_page,
    "an agent's tool": doors.by_agent,
    "a table of machines": doors.in_a_table,
    "several lengths": doors.among_lengths,
    "several numbers": doors.beside_another_number,
    "--show lengths": doors.on_the_ladder,
    "a mix of one": doors.as_a_mix,
    "explain": doors.by_explain,
    "size PLAN": doors.as_a_plan,
    "check PLAN": doors.by_check,
    "validate PLAN": searches.by_validate,
    "plan": searches.by_plan,
    "fits": searches.by_fits,
    "--show least": searches.by_least,
}


def told_to(asked: Asked) -> SizeResult | None:
    """The answer, where there is one."""
    try:
        return doors.size_of(asked)
    except KvplanError:
        return None


def edged(asked: Asked, chance: random.Random) -> tuple[Asked, SizeResult] | None:
    """The question, mostly with about as many requests as are held, and its answer."""
    told = told_to(asked)
    if told is not None and chance.random() < 0.6:
        asked = at_the_edge(asked, told, chance)
        told = told_to(asked)
    return None if told is None else (asked, told)


def differences(name: str, asked: Asked, told: SizeResult, folder: Path) -> list[str] | None:
    """What a way of asking says otherwise; None where it cannot be asked that."""
    own = {**doors.figures(told.model_dump()), "code": doors.code_of(told)}
    try:
        found = DOORS[name](asked, told, folder)
    except AssertionError as error:
        return [f"{name}: {error}\n    {asked}"]
    if found is None:
        return None
    return [
        f"{name}: {figure} {value}, not {own[figure]}\n    {asked}"
        for figure, value in found.items()
        if value != own[figure]
    ]


_RANK = {Verdict.NO: 0, Verdict.UNLIKELY: 1, Verdict.LIKELY: 2, Verdict.YES: 3}


def easier(asked: Asked, told: SizeResult, chance: random.Random) -> Iterator[tuple[str, Asked]]:
    """Questions whose answers are no worse: of fewer requests, on more GPUs, of shorter ones, of a server
    that is started for a shorter one."""
    tokens, number, ref = asked.options["tokens"], asked.options["requests"], told.deployment
    assert ref is not None
    if number > 1:
        yield "verdict", asked.asking(requests=chance.choice((1, number - 1, max(1, number // 2))))
    hosted = {"layers_on_host", "expert_layers_on_host"} & set(told.settings)
    if tokens > 1 and not hosted:  # llama.cpp leaves no more in host memory than this very load needs
        yield "counts", asked.asking(tokens=chance.choice((tokens // 2, tokens - 1)))
    if asked.engine == "llamacpp":
        return
    others = asked.options.get("pipeline_parallel_size", 1) * asked.options.get("data_parallel_size", 1)
    gpus = ref.gpus + ref.gpus_per_replica * chance.choice((1, 2))
    ways = ref.gpus_per_replica // others
    yield "counts", asked.asking(gpu=f"{gpus}x{searches.kind_of(asked)}", tensor_parallel_size=ways)
    stated = asked.options.get("max_model_len", tokens)
    if stated > tokens:
        yield "counts", asked.asking(max_model_len=chance.choice((tokens, (stated + tokens) // 2)))


SHORT_BATCH = "max-num-batched-tokens"
"""Code of vLLM's refusal where a batch is too short for an image or a video: its default batch is no longer
than max_num_seqs requests of max_model_len (vllm/engine/arg_utils.py)."""


def _is_shorter(asked: Asked, other: Asked) -> bool:
    """Whether the other question is of a server that is started for a shorter length, and so for a shorter
    batch."""
    lengths = [one.options.get("max_model_len", one.options["tokens"]) for one in (asked, other)]
    return lengths[1] < lengths[0] and "max_num_batched_tokens" not in asked.options


def worse(what: str, asked: Asked, told: SizeResult, other: Asked, less: SizeResult) -> list[str]:
    """Where the answer to an easier question (`easier`) is worse, both."""
    one, two = told.capacity, less.capacity
    if what == "verdict":
        assert told.verdict is not None
        assert less.verdict is not None
        if _RANK[less.verdict] < _RANK[told.verdict]:
            return [f"{told.verdict.value}: {asked}\n{less.verdict.value}: {other}"]
    elif one is not None and (one.requests or one.safe_requests):
        if less.refusal is not None and less.refusal.code == SHORT_BATCH and _is_shorter(asked, other):
            return []
        fewer = two is None or two.requests < one.requests or two.safe_requests < one.safe_requests
        return [f"{one}: {asked}\n{two}: {other}"] if fewer else []
    return []
