"""A lock: the figures of a check, and what they were computed from, to say later what moved them.

Of each plan: the figures, and digests of the plan (without its engine), of the model's card and of the GPU's
data, the engine's release; of all: kvplan's version. A figure that is another one later was moved by what has
another digest since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.plans.findings import CheckedPlan, Fact
from kvplan.record import record

LOCK_FORMAT = "lock/v1"
PLAN, CARD, GPU, ENGINE, KVPLAN = "plan", "card", "GPU data", "engine", "kvplan"
_OF_THE_PLAN = frozenset("gpus replicas cost_per_hour tokens".split())
"""Figures that nothing but the plan says."""


@record()
class Locked:
    """One plan as it was. plan, card, gpu: digests; "" where there is none."""

    path: str
    name: str
    environment: str | None
    passed: bool
    engine: str
    plan: str
    card: str
    gpu: str
    facts: tuple[Fact, ...]

    _JSON = ("path", "name", "environment", "passed", "engine", "plan", "card", "gpu", "facts")

    @property
    def key(self) -> tuple[str, str, str | None]:
        return self.path, self.name, self.environment

    @property
    def checked(self) -> CheckedPlan:
        """As the baseline of a check."""
        return CheckedPlan(self.name, self.path, self.environment, facts=self.facts, locked=self.passed)


@record()
class Lock:
    """All plans of a check. version: kvplan's."""

    version: str
    plans: tuple[Locked, ...]

    _JSON = ("kvplan", "version", "plans")

    @property
    def kvplan(self) -> str:
        return LOCK_FORMAT


def lock_of(data: Mapping[str, Any]) -> Lock:
    """The lock that its JSON says. Raises KeyError, TypeError or ValueError where it says none."""
    if data["kvplan"] != LOCK_FORMAT:
        raise ValueError(data["kvplan"])
    plans = []
    for one in data["plans"]:
        texts = {name: _text(one[name]) for name in ("path", "name", "engine", "plan", "card", "gpu")}
        facts = tuple(
            Fact(_text(fact["name"]), _whole(fact["value"]), _text(fact["unit"])) for fact in one["facts"]
        )
        environment = None if one["environment"] is None else _text(one["environment"])
        plans.append(Locked(**texts, environment=environment, passed=bool(one["passed"]), facts=facts))
    return Lock(_text(data["version"]), tuple(plans))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def moved_by(
    before: Locked, after: Locked, older: Sequence[Fact] | None, *, versions: tuple[str, str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(Each figure that is another one, what moved it), by what has another digest.

    older: the plan's figures of today under the engine's release of the lock; None where it is the same, or
    cannot be asked. A figure that is with it what it was, the engine alone moved; one that is with it what it
    is now, the engine did not. Where nothing else differs, kvplan's rules do. versions: of kvplan, then and
    now.
    """
    pairs = ((PLAN, before.plan, after.plan), (CARD, before.card, after.card), (GPU, before.gpu, after.gpu))
    others = [name for name, then, today in pairs if then != today]
    others += [KVPLAN] if versions[0] != versions[1] else []
    bumped = before.engine != after.engine
    then = {fact.name: fact.value for fact in before.facts}
    under = None if older is None else {fact.name: fact.value for fact in older}
    values = {fact.name: fact.value for fact in after.facts}
    found = []
    for name in dict.fromkeys((*then, *values)):
        if then.get(name) == values.get(name):
            continue
        causes = [ENGINE] * bumped + others
        if name in _OF_THE_PLAN and PLAN in others:
            causes = [PLAN]
        elif bumped and under is not None:
            if under.get(name) == then.get(name):
                causes = [ENGINE]
            elif under.get(name) == values.get(name):
                causes = others
        found.append((name, tuple(causes) or (KVPLAN,)))
    return tuple(found)
