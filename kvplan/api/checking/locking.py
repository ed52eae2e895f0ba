"""A check as a lock, and what moved its figures since one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvplan.checking import check_plan
from kvplan.checking.case import Case
from kvplan.errors import KvplanError
from kvplan.files.cards.index import FOLDER, newer_cards
from kvplan.files.datafiles import packaged_slugs, read_packaged
from kvplan.model import Model
from kvplan.plans.findings import CheckedPlan, Difference, Fact, Moved
from kvplan.plans.lock import ENGINE, Lock, Locked, moved_by
from kvplan.plans.plan import Plan
from kvplan.plans.receipt import digest_of, plan_hash
from kvplan.record import dumped, exact, replace
from kvplan.results import SizeResult
from kvplan.version import __version__

Answered = tuple[Plan, Model, CheckedPlan]
"""A plan, its model, and the plan after the check."""
_CARD = "card:"


def lock_of_check(answered: Sequence[Answered]) -> Lock:
    """The plans that were judged, by path, name and environment."""
    plans = [_locked(*one) for one in answered if one[2].error is None]
    return Lock(__version__, tuple(sorted(plans, key=lambda one: (*one.key[:2], one.environment or ""))))


def moved_since(lock: Lock, answered: Sequence[Answered]) -> tuple[Moved, ...]:
    """The causes for the figures of each plan that the lock has too."""
    then = {one.key: one for one in lock.plans}
    found = []
    for plan, model, one in answered:
        before = then.get(one.key)
        if before is None or one.error is not None:
            continue
        after = _locked(plan, model, one)
        older = replace(plan, engine=before.engine) if before.engine != after.engine else None
        facts = moved_by(
            before,
            after,
            None if older is None else _facts(older, model),
            versions=(lock.version, __version__),
        )
        bumped = older is not None and any(ENGINE in causes for _, causes in facts)
        why = tuple(_why(older, plan, model)) if bumped and older is not None else ()
        found.append(Moved(*one.key, facts=facts, why=why))
    return tuple(found)


def _locked(plan: Plan, model: Model, one: CheckedPlan) -> Locked:
    price = plan.price_per_gpu_hour
    said = {"plan": plan_hash(replace(plan, engine=""), model.id), "price": price and exact(price)}
    gpu = plan.settings.gpu
    return Locked(
        *one.key,
        passed=one.passed,
        engine=plan.engine,
        plan=digest_of(said),
        card=card_digest(model),
        gpu="" if gpu is None else digest_of({"gpu": {**dumped(gpu), "source": None}}),
        facts=one.facts,
    )


def card_digest(model: Model) -> str:
    """Of the card's file; of a model without a card of its id and config."""
    if model.source.startswith(_CARD):
        slug = model.source.removeprefix(_CARD).partition("@")[0].partition("#")[0]
        newer = newer_cards()
        if newer is not None and slug in newer.cards:
            return _sha(newer.cards[slug].encode(), model.id)
        if slug in packaged_slugs(FOLDER):
            return _sha(read_packaged(FOLDER, slug), model.id)
    return digest_of({"id": model.id, "config": repr(None if model.config is None else dict(model.config))})


def _sha(content: bytes, name: str) -> str:
    return "sha256:" + hashlib.sha256(name.encode() + b"\0" + content).hexdigest()


def _facts(plan: Plan, model: Model) -> tuple[Fact, ...] | None:
    """Its figures of today; None where it cannot be judged."""
    found = check_plan(plan, model)
    return None if found.error is not None else found.facts


def _why(before: Plan, after: Plan, model: Model) -> Iterator[Difference]:
    """Lines of the budget and resolved settings that the two releases have differently, the largest first."""
    try:
        old, new = (Case(one, model).result for one in (before, after))
    except KvplanError:
        return
    if old is None or new is None:
        return
    lines = [_lines(one) for one in (old, new)]
    names = dict.fromkeys((*lines[0], *lines[1]))
    moved = [(lines[1].get(name, 0) - lines[0].get(name, 0), name) for name in names]
    for change, name in sorted(moved, key=lambda pair: (-abs(pair[0]), pair[1])):
        if change:
            yield Difference(name, lines[0].get(name, 0), lines[1].get(name, 0), "bytes")
    for name in dict.fromkeys((*old.settings, *new.settings)):
        values = old.settings.get(name), new.settings.get(name)
        if values[0] != values[1] and name != "max_model_len":
            yield Difference(name, _plain(values[0]), _plain(values[1]))


def _lines(result: SizeResult) -> dict[str, int]:
    """Bytes of each line of the budget of one GPU: what the pool is left by."""
    if result.budget is None:
        return {}
    found: dict[str, int] = {}
    for line in result.budget.lines:
        found[line.name] = found.get(line.name, 0) + line.bytes
    return found


def _plain(value: object) -> int | float | bool | str | None:
    """A setting's value as JSON has it."""
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def baseline_lock(baseline: str | Path | None) -> Path | None:
    """The baseline, where it is a lock."""
    from kvplan.files.plans.lock import is_lock

    return Path(baseline) if baseline is not None and is_lock(Path(baseline)) else None
