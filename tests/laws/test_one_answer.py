"""One question has one answer: every way of asking gives it, and answers agree with one another.

`make test` takes some questions of each law, `make laws` hundreds. They are the same ones each run.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvplan.cli.ask import typed
from kvplan.cli.quick import parse
from kvplan.deployment.answer import Answer, answered
from kvplan.deployment.counts import MAX_REQUESTS, ask
from kvplan.deployment.held import bytes_held
from kvplan.deployment.resolve import Deployment, resolve
from kvplan.engines.base import LIKELY
from kvplan.engines.budget.sharing import usable_bytes
from kvplan.errors import KvplanError
from kvplan.files.cards.find import list_cards
from kvplan.results import SizeResult, Verdict
from kvplan.settings import started_in
from tests.laws import doors, searches
from tests.laws.agreement import DOORS, differences, easier, edged, told_to, worse
from tests.laws.questions import Asked, questions
from tests.laws.sampling import WHOLE
from tests.laws.screens import forms, recommended, wrong_of

pytestmark = pytest.mark.laws
SEED = 20261129
PARTS = range(10 if WHOLE else 1)
in_parts = pytest.mark.parametrize("part", PARTS)


def asked_in(part: int, few: int, many: int) -> Iterator[tuple[Asked, random.Random]]:
    """The questions of one part of a law: so few in all, or so many in `make laws`, where every second part
    asks about any model that has a card."""
    count = many // len(PARTS) if WHOLE else few
    chance = random.Random(SEED + part)
    cards = [card.slug for card in list_cards()] if part % 2 else []
    for asked in questions(SEED + part, count, cards):
        yield asked, chance


@in_parts
def test_every_way_of_asking_gives_one_answer(part: int, tmp_path: Path) -> None:
    """Verdict, exit code, counts, bytes, blocks and pools; what is not said is not compared."""
    wrong: list[str] = []
    compared: Counter[str] = Counter()
    asked_for = 0
    for question, chance in asked_in(part, 20, 500):
        found = edged(question, chance)
        if found is None:
            continue
        asked_for += 1
        for name in DOORS:
            differs = differences(name, *found, tmp_path)
            wrong += differs or []
            compared[name] += differs is not None
    assert not wrong, "\n".join(wrong)
    assert all(compared[name] >= asked_for / 12 for name in DOORS), compared


@in_parts
def test_what_is_easier_is_never_answered_worse(part: int) -> None:
    wrong: list[str] = []
    compared = 0
    for question, chance in asked_in(part, 25, 1000):
        found = edged(question, chance)
        if found is None or found[1].verdict is None:
            continue
        asked, told = found
        counts = told.capacity
        assert counts is None or counts.safe_requests <= counts.requests, asked
        for what, other in easier(asked, told, chance):
            less = told_to(other)
            if less is None or less.verdict is None:
                continue
            compared += 1
            wrong += worse(what, asked, told, other, less)
    assert not wrong, "\n".join(wrong)
    assert compared > 25


RESERVED_BY_RANK = {("sglang", "activations, graphs"), ("vllm", "weights"), ("vllm", "after the pool")}
"""What takes more of each GPU where there are more ranks: SGLang's automatic mem_fraction_static keeps memory
free for every rank (sgl-project/sglang srt/server_args.py, 0.4.6 to 0.5.9: _handle_gpu_memory_settings); a
vision encoder whose heads do not divide is whole on every rank (vllm-project/vllm
vllm/model_executor/models/intern_vit.py, disable_tp); ranks open buffers with each other once vLLM's pool is
there, for which a share above the default may leave too little (vllm-project/vllm#51590)."""


@in_parts
def test_twice_the_ranks_hold_no_fewer(part: int) -> None:
    """On twice the GPUs, unless the engine itself keeps more of each or does not divide the heads so far."""
    wrong: list[str] = []
    compared = 0
    for asked, chance in asked_in(part, 40, 1000):
        if asked.engine.partition("@")[0] in ("llamacpp", "tgi"):
            continue
        ways, kind = chance.choice((1, 2, 4, 8)), searches.kind_of(asked)
        pinned = {"data_parallel_size": None, "pipeline_parallel_size": None}
        pair = [
            (one, told_to(one))
            for tp in (ways, 2 * ways)
            for one in [asked.asking(gpu=f"{tp}x{kind}", tensor_parallel_size=tp, **pinned)]
        ]
        (one, few), (other, many) = pair
        if few is None or many is None or few.capacity is None or many.capacity is None:
            continue  # heads that cannot be divided are refused
        compared += 1
        if many.capacity.safe_requests >= few.capacity.safe_requests:
            continue
        assert few.budget is not None
        assert many.budget is not None
        before = {line.name: line.high_bytes for line in few.budget.lines}
        grown = {line.name for line in many.budget.lines if line.high_bytes > before.get(line.name, 0)}
        if not any((asked.engine.partition("@")[0], name) in RESERVED_BY_RANK for name in grown):
            wrong.append(f"{few.capacity}: {one}\n{many.capacity}: {other}\n{grown}")
    assert not wrong, "\n".join(wrong)
    assert compared > 5


def deployed(asked: Asked) -> Deployment | None:
    """The deployment of a command line."""
    parsed = parse(["size", *asked.words], {})
    assert parsed is not None
    _, names, given = parsed
    try:
        return resolve(typed(names, given).first)
    except KvplanError:
        return None


def of_each(deployment: Deployment, requests: int) -> Answer:
    """The answer for so many requests in every pool."""
    settings = replace(deployment.settings, requests=requests)
    return answered(replace(deployment, settings=settings, requests=requests * deployment.pools))


def in_any_pool(deployment: Deployment, requests: int) -> int:
    """The least bytes in which so many requests run, whatever the pool is."""
    settings = replace(deployment.settings, requests=requests)
    found = ask(deployment.model, replace(deployment.choice, pool=LIKELY), settings)
    return bytes_held(deployment.model, deployment.choice, settings, found)


WAITING = Fraction(2, 100)
"""Where requests wait for one another's prompts, a burst may run in a pool and not in one that is slightly
larger. The answer itself stays on the side of its count."""


@in_parts
def test_bytes_and_counts_agree(part: int) -> None:
    """Of N, the most that a pool runs: N are held in what requests can have of it, N + 1 are not."""
    wrong: list[str] = []
    compared = uncapped = 0
    for asked, _ in asked_in(part, 30, 1500):
        deployment = deployed(asked if asked.options["tokens"] > 1 else asked.asking(tokens=64))
        try:
            first = None if deployment is None else answered(deployment)
        except KvplanError:
            continue
        if deployment is None or first is None or first.likely is None or not first.likely.each:
            continue
        most, pool = first.likely.each, first.result.pool
        if pool is None or most >= MAX_REQUESTS:
            continue
        whole = of_each(deployment, most)
        usable = usable_bytes(whole.result)
        compared += 1
        if whole.result.per_gpu.kv_bytes > usable:
            wrong.append(f"{most} take {whole.result.per_gpu.kv_bytes:,} of {usable:,}: {asked}")
        if asked.engine == "llamacpp":  # a context for more requests is another deployment
            continue
        if in_any_pool(deployment, most) > usable * (1 + WAITING):
            wrong.append(f"{most} take {in_any_pool(deployment, most):,} of {usable:,} in any pool: {asked}")
        if most >= pool.max_num_seqs:
            continue
        uncapped += 1
        more = of_each(deployment, most + 1).result.per_gpu.kv_bytes
        if more <= usable or in_any_pool(deployment, most + 1) <= usable * (1 - WAITING):
            wrong.append(f"{most + 1} take {more:,} of {usable:,}: {asked}")
    assert not wrong, "\n".join(wrong)
    assert compared > 10
    assert uncapped > 3


@in_parts
def test_what_a_screen_recommends_works(part: int) -> None:
    """Options of a help, added to the command, lead to a yes; a command that comes next can be answered."""
    wrong: list[str] = []
    tried: Counter[str] = Counter()
    for question, chance in asked_in(part, 25, 500):
        found = edged(question, chance)
        asked = question if found is None else found[0]
        for words in forms(asked, chance):
            shown = doors.ran(*words)
            assert shown.code != 70, shown.err
            for line in recommended(shown, words) if shown.code in (0, 1) else ():
                tried[line.label] += 1
                said = wrong_of(line, whole=WHOLE)
                wrong += [] if said is None else [f"{said}\n    {asked}\n    {words}"]
    assert not wrong, "\n".join(wrong)
    assert tried["help"] > 5, tried
    assert tried["next"] > 5, tried


@in_parts
def test_the_verdict_says_in_which_pool_the_load_is_held(part: int) -> None:
    """Safe, likely, the most that there may be, or none: each pool stated in bytes, and the engine asked."""
    found: Counter[Verdict] = Counter()
    for question, chance in asked_in(part, 30, 1000):
        asked = edged(question, chance)
        told = None if asked is None else asked[1]
        deployment = None if asked is None else deployed(asked[0])
        if deployment is None or told is None or told.capacity is None or told.budget is None:
            continue
        if told.refusal is not None or told.verdict is None:
            continue
        verdict, budget = told.verdict, told.budget
        pools = {
            Verdict.YES: budget.kv_pool_low_bytes,
            Verdict.LIKELY: budget.kv_pool_bytes,
            Verdict.UNLIKELY: budget.kv_pool_high_bytes,
        }
        held = next((name for name, pool in pools.items() if pool and holds(deployment, pool)), Verdict.NO)
        assert verdict is held, f"{verdict.value}, not {held.value}: {asked}"
        found[verdict] += 1
    assert found.total() > 12
    assert found[Verdict.UNLIKELY]


def holds(deployment: Deployment, pool: int) -> bool:
    """Whether a server that starts in so many bytes runs the load."""
    settings = started_in(deployment.settings, pool)
    result = ask(deployment.model, replace(deployment.choice, pool=None), settings)
    running = 0 if result.pool is None else result.pool.max_running
    return result.refusal is None and running >= settings.requests


class Calls(NamedTuple):
    """How often an engine was asked for one answer: with a pool, and for the least pool of the load."""

    answers: int
    bytes: int


_ASIDE = {"_nothing_left", "_fit"}
"""Suggestions of a refusal, and how a GPU's memory is divided, which is remembered."""


def calls_of(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> tuple[Answer, Calls]:
    """The answer, and how often the engine's ``size`` was called for it. Raises KvplanError."""
    kind = type(deployment.choice.engine)
    size, counted = kind.size, Counter[str]()

    def counting(*words: Any) -> SizeResult:
        frame, callers = sys._getframe(1), set[str]()
        while frame is not None and frame.f_code.co_name != "answered":
            callers.add(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        if not callers & _ASIDE:
            counted["bytes" if "bytes_held" in callers else "answers"] += 1
        return size(*words)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "size", counting)
        found = answered(deployment)
    return found, Calls(counted["answers"], counted["bytes"])


@in_parts
def test_an_engine_is_asked_once_for_each_pool(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likely and safe, and the most that there may be only where neither holds the load; besides, the least
    bytes of the load are looked for: three times as a rule, by doubling and halving where states wait."""
    compared = 0
    for question, chance in asked_in(part, 30, 1000):
        found = edged(question, chance)
        deployment = None if found is None else deployed(found[0])
        if deployment is None:
            continue
        answer, calls = calls_of(deployment, monkeypatch)
        compared += 1
        most = 2 if answer.verdict in (Verdict.YES, Verdict.LIKELY) else 3
        assert calls.answers <= most, f"{calls.answers} answers for {answer.verdict}: {question}"
        assert calls.bytes <= 80, f"{calls.bytes} for the bytes: {question}"
    assert compared > 20
