"""What a check says of a plan: findings with a place, figures for comparison, and the exit code."""

from __future__ import annotations

from enum import Enum
from typing import Any

from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_CANNOT_RUN, EXIT_NO, EXIT_OK, KvplanError, Mark
from kvplan.record import record


class Severity(str, Enum):
    """How bad: an error fails the check, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@record()
class Finding:
    """One thing that is so. code: kebab-case, stable. field: dotted path in the plan that it is about.

    detail: what was computed, a line each. help: suggested fixes, each computed before it is said.
    """

    code: str
    severity: Severity
    message: str
    field: str | None = None
    detail: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    mark: Mark | None = None


@record()
class Fact:
    """One predicted figure of a plan. unit: bytes, requests, tokens, blocks, gpus, share (numerator of
    10,000) or millionths (of the currency, for a cost)."""

    name: str
    value: int
    unit: str


@record()
class CheckedPlan:
    """One plan (in one environment) after the check. error: it could not be read or judged."""

    name: str
    path: str
    environment: str | None
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    summary: str = ""
    error: KvplanError | None = None
    mark: Mark | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What makes it the same plan in another state of the files."""
        return self.path, self.name, self.environment

    @property
    def passed(self) -> bool:
        """Whether nothing in it is an error."""
        return self.error is None and all(one.severity is not Severity.ERROR for one in self.findings)

    def fact(self, name: str) -> int | None:
        """The figure of that name, where the check got as far."""
        return next((fact.value for fact in self.facts if fact.name == name), None)


@record()
class CheckReport:
    """All plans of one run, in the order of the paths. baseline: the same plans as they were before."""

    plans: tuple[CheckedPlan, ...]
    baseline: tuple[CheckedPlan, ...] = ()

    def pairs(self) -> tuple[tuple[CheckedPlan | None, CheckedPlan | None], ...]:
        """(before, after) of every plan: None where it is new or gone. In the order of the plans, then of the
        baseline. The same plan: path, name and environment are equal."""
        earlier = {one.key: one for one in self.baseline}
        found = [(earlier.get(one.key), one) for one in self.plans]
        now = {one.key for one in self.plans}
        return (*found, *((one, None) for one in self.baseline if one.key not in now))

    @property
    def exit_code(self) -> int:
        """2 where a plan cannot be read, 3 where one needs what this machine lacks, 1 where one fails, 0."""
        codes = {one.error.exit_code for one in self.plans if one.error is not None}
        for code in (EXIT_CANNOT_ANSWER, EXIT_CANNOT_RUN):
            if code in codes:
                return code
        return EXIT_OK if all(one.passed for one in self.plans) else EXIT_NO

    def counts(self) -> dict[str, Any]:
        """How many plans passed, failed and could not be read."""
        unread = sum(one.error is not None for one in self.plans)
        passed = sum(one.passed for one in self.plans)
        return {
            "plans": len(self.plans),
            "passed": passed,
            "failed": len(self.plans) - passed - unread,
            "unreadable": unread,
        }
