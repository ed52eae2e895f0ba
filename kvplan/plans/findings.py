"""A check's result for a plan: findings with a place, figures for comparison, and the exit code."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_CANNOT_RUN, EXIT_NO, EXIT_OK, KvplanError, Mark
from kvplan.plans.using import FleetUse
from kvplan.record import field, record
from kvplan.results import SCHEMA_VERSION, Documented, Entry


class Severity(str, Enum):
    """How bad: an error fails the check, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@record()
class Finding(Entry):
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

    _JSON = ("code", "severity", "message", "field", "detail", "help", "place")

    @property
    def place(self) -> Mark | None:
        """where it stands in the file"""
        return self.mark


@record()
class Fact:
    """One predicted figure of a plan. unit: bytes, requests, tokens, blocks, gpus, share (numerator of
    10,000) or millionths (of the currency, for a cost)."""

    name: str
    value: int
    unit: str


@record()
class MeasuredFact:
    """One figure of a plan that a receipt measured. predicted: by today's rules."""

    name: str
    unit: str
    predicted: int
    measured: int


@record()
class Proof:
    """A receipt that holds for the plan. device: the GPU's own name; written: the day, ISO 8601.

    measured_by, version: the engine that ran, or kvplan, which allocated the engine's tensors itself.
    """

    path: str
    device: str
    written: str
    measured_by: str
    version: str
    facts: tuple[MeasuredFact, ...]


@record()
class CheckedPlan(Entry):
    """One plan (in one environment) after the check. error: it could not be read or judged. evidence: its
    receipts with which nothing is wrong."""

    name: str
    path: str
    environment: str | None
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    summary: str = ""
    error: KvplanError | None = None
    mark: Mark | None = None
    evidence: tuple[Proof, ...] = ()
    locked: bool | None = None
    """of a plan of a lock: whether it passed then"""

    _JSON = ("name", "path", "environment", "passed", "summary", "findings", "facts", "evidence", "error")
    _JSON_OPTIONAL = ("evidence",)

    @property
    def _json_error(self) -> dict[str, Any] | None:
        """why it could not be read or judged"""
        return None if self.error is None else self.error.as_dict()

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Key that identifies this plan across revisions."""
        return self.path, self.name, self.environment

    @property
    def passed(self) -> bool:
        """Whether nothing in it is an error."""
        if self.locked is not None:
            return self.locked
        return self.error is None and all(one.severity is not Severity.ERROR for one in self.findings)

    def fact(self, name: str) -> int | None:
        """The figure of that name, where the check got as far."""
        return next((fact.value for fact in self.facts if fact.name == name), None)


@record()
class ChangedFact:
    """One figure before and after; null where there is none."""

    name: str
    unit: str
    before: int | None
    after: int | None
    difference: int | None
    moved_by: tuple[str, ...] = ()
    """of a lock: ``plan``, ``card``, ``GPU data``, ``engine``, ``kvplan``; several where it cannot be told"""

    _JSON_OPTIONAL = ("moved_by",)


@record()
class Difference:
    """A line of the budget, in bytes of one GPU, or a resolved setting (unit: none) of two releases."""

    name: str
    before: int | float | bool | str | None
    after: int | float | bool | str | None
    unit: Literal["bytes"] | None = None


@record()
class Change:
    """One plan against the baseline. state: kept, new or gone."""

    name: str
    path: str
    environment: str | None
    state: str
    passed_before: bool | None
    passed: bool | None
    facts: tuple[ChangedFact, ...]
    why: tuple[Difference, ...] = ()
    """of a lock whose engine's release is another: the lines of the budget and the settings that differ"""

    _JSON_OPTIONAL = ("why",)


@record()
class Moved:
    """The causes for which figures of one plan are others than in a lock."""

    path: str
    name: str
    environment: str | None
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    why: tuple[Difference, ...]

    @property
    def key(self) -> tuple[str, str, str | None]:
        return self.path, self.name, self.environment

    def by(self, name: str) -> tuple[str, ...]:
        """The causes of that figure."""
        return dict(self.facts).get(name, ())


@record()
class CheckReport(Documented):
    """All plans of one run, in the order of the paths. baseline: the same plans as they were before."""

    plans: tuple[CheckedPlan, ...]
    baseline: tuple[CheckedPlan, ...] = ()
    moved: tuple[Moved, ...] = ()
    """what moved figures, where the baseline is a lock"""
    fleet: FleetUse | None = None
    """all plans against a fleet, where one was named"""
    require: str | None = None
    """requirements given beside the plans, which count before their own: ``requests=60,tokens=8k``"""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON = ("schema_version", "exit_code", "counts", "require", "plans", "fleet", "changes")
    _JSON_OPTIONAL = ("require", "fleet", "changes")

    @property
    def changes(self) -> tuple[Change, ...]:
        """only where there is a baseline"""
        return tuple(_change(*pair, self.moved_of(*pair)) for pair in self.pairs()) if self.baseline else ()

    def moved_of(self, before: CheckedPlan | None, after: CheckedPlan | None) -> Moved | None:
        """The causes for a plan's figures; None where the baseline is no lock, or one of both is missing."""
        if before is None or after is None:
            return None
        return next((one for one in self.moved if one.key == after.key), None)

    def pairs(self) -> tuple[tuple[CheckedPlan | None, CheckedPlan | None], ...]:
        """(before, after) of every plan: None where it is new or gone. In the order of the plans, then of the
        baseline. The same plan: path, name and environment are equal."""
        earlier = {one.key: one for one in self.baseline}
        found = [(earlier.get(one.key), one) for one in self.plans]
        now = {one.key for one in self.plans}
        return (*found, *((one, None) for one in self.baseline if one.key not in now))

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each finding; a plan without one has a row without a code."""
        rows: list[dict[str, Any]] = []
        for one in self.plans:
            plan = {"plan": one.name, "environment": one.environment, "passed": one.passed}
            told: list[dict[str, Any]] = [
                {"severity": found.severity.value, "code": found.code, "message": found.message}
                for found in one.findings
            ]
            rows += [{**plan, **each} for each in told or [dict.fromkeys(("severity", "code", "message"))]]
        return rows

    @property
    def exit_code(self) -> int:
        """2 where a plan cannot be read, 3 where one needs what this machine lacks, 1 where one fails, 0."""
        codes = {one.error.exit_code for one in self.plans if one.error is not None}
        for code in (EXIT_CANNOT_ANSWER, EXIT_CANNOT_RUN):
            if code in codes:
                return code
        enough = self.fleet is None or self.fleet.passed
        return EXIT_OK if enough and all(one.passed for one in self.plans) else EXIT_NO

    @property
    def counts(self) -> dict[str, int]:
        """how many plans passed, failed and could not be read"""
        unread = sum(one.error is not None for one in self.plans)
        passed = sum(one.passed for one in self.plans)
        return {
            "plans": len(self.plans),
            "passed": passed,
            "failed": len(self.plans) - passed - unread,
            "unreadable": unread,
        }


def _change(before: CheckedPlan | None, after: CheckedPlan | None, moved: Moved | None) -> Change:
    """The figures of one plan before and after."""
    one = after or before
    assert one is not None
    sides = [side for side in (before, after) if side is not None]
    facts = []
    for name, unit in dict.fromkeys((fact.name, fact.unit) for side in sides for fact in side.facts):
        old, new = (None if side is None else side.fact(name) for side in (before, after))
        difference = None if old is None or new is None else new - old
        by = () if moved is None else moved.by(name)
        facts.append(ChangedFact(name, unit, old, new, difference, by))
    return Change(
        one.name,
        one.path,
        one.environment,
        "gone" if after is None else "new" if before is None else "kept",
        None if before is None else before.passed,
        None if after is None else after.passed,
        tuple(facts),
        () if moved is None else moved.why,
    )
