"""Shared by the forms of a check: an issue and its place, figures in words, paths as CI systems take them."""

from __future__ import annotations

import posixpath

from kvplan.engines.folders import title_of as engine_title
from kvplan.errors import Mark
from kvplan.later import regex
from kvplan.plans.findings import CheckedPlan, CheckReport, Difference, Fact, Finding, Proof, Severity
from kvplan.record import record
from kvplan.report.check.fleet import as_plan, fleet_phrase
from kvplan.report.layout import printable as printable
from kvplan.report.words import size_words
from kvplan.units import gib

TITLES = {
    "max_requests": "Requests",
    "safe_max_requests": "Requests, safe",
    "max_requests_in_flight": "Requests of the workload",
    "tokens": "Tokens of a request",
    "max_model_len": "Longest request",
    "kv_pool_bytes": "KV pool of one GPU",
    "kv_pool_low_bytes": "KV pool, safe",
    "kv_bytes_per_request": "KV cache of one request",
    "weights_bytes_per_gpu": "Weights of one GPU",
    "num_blocks": "Blocks",
    "gpus": "GPUs",
    "replicas": "Replicas",
    "cost_per_hour": "Cost per hour",
}
_NOUNS = {"pool_bytes": "pool", "kv_bytes": "KV cache"}
"""Figures that a receipt measured in bytes, in a sentence; other figures are counts of their unit."""
_DRIVE = regex(r"[A-Za-z]:/")


@record()
class Place:
    """Where an issue stands, columns from 1, end_column after the last one. line None: the file as a
    whole."""

    path: str
    line: int | None = None
    column: int | None = None
    end_column: int | None = None


@record()
class Issue:
    """A finding, or the error for which a plan could not be judged. ordinal: among those with the same code
    and field of one plan."""

    code: str
    severity: Severity
    message: str
    field: str | None
    detail: tuple[str, ...]
    help: tuple[str, ...]
    place: Place
    ordinal: int = 0

    @property
    def text(self) -> str:
        """Message, what was computed, suggested fixes; a line each."""
        return "\n".join((self.message, *self.detail, *(f"help: {line}" for line in self.help)))


def issues_of(one: CheckedPlan) -> tuple[Issue, ...]:
    """Everything that is said of a plan: its error first, findings in their order."""
    found: list[Issue] = []
    if one.error is not None:
        error = one.error
        place = place_of(one, error.place or one.mark)
        shown = error.where if error.place is None else (error.where or "").partition("\n")[2]
        detail = (shown, *error.detail) if shown else error.detail
        found.append(Issue(error.code, Severity.ERROR, error.message, None, detail, error.help, place))
    seen: dict[tuple[str, str | None], int] = {}
    for finding in one.findings:
        key = (finding.code, finding.field)
        found.append(_issue(one, finding, seen.get(key, 0)))
        seen[key] = seen.get(key, 0) + 1
    return tuple(found)


def _issue(one: CheckedPlan, finding: Finding, ordinal: int) -> Issue:
    place = place_of(one, finding.mark or one.mark)
    return Issue(
        finding.code, finding.severity, finding.message, finding.field, finding.detail, finding.help,
        place, ordinal,
    )  # fmt: skip


def place_of(one: CheckedPlan, mark: Mark | None) -> Place:
    """The mark's place, else the plan's file."""
    if mark is None:
        return Place(plain_path(one.path))
    return Place(plain_path(mark.path), mark.line, mark.column, max(mark.end_column, mark.column + 1))


def plain_path(path: str) -> str:
    """With slashes and without ``.`` and ``..`` in the middle, as CI systems match files."""
    slashed = path.replace("\\", "/")
    return posixpath.normpath(slashed) if slashed else slashed


def is_absolute(path: str) -> bool:
    """``/a``, ``C:/a`` or ``//host/a``."""
    return path.startswith("/") or _DRIVE.match(path) is not None


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(printable(text).split())


def label(one: CheckedPlan) -> str:
    """``chat``, in an environment ``chat (staging)``."""
    return one.name if one.environment is None else f"{one.name} ({one.environment})"


def verdict(one: CheckedPlan) -> str:
    """``passes``, ``fails`` or ``could not be judged``."""
    if one.error is not None:
        return "could not be judged"
    return "passes" if one.passed else "fails"


def sentence(report: CheckReport) -> str:
    """``2 of 3 plans pass, 1 fails; the fleet has too few GPUs.``"""
    told = _passing(report) + ("" if report.require is None else f", with --require {report.require}")
    return told + ("." if report.fleet is None else f"; {fleet_phrase(report.fleet)}.")


def cases_of(report: CheckReport) -> tuple[CheckedPlan, ...]:
    """The plans, and the fleet as a case of its own where one was named."""
    return report.plans if report.fleet is None else (*report.plans, as_plan(report.fleet))


def _passing(report: CheckReport) -> str:
    counts = report.counts
    total, passed, failed, unread = (counts[key] for key in ("plans", "passed", "failed", "unreadable"))
    if total == 0:
        return "No plan has changed"
    if passed == total:
        return "The plan passes" if total == 1 else f"All {total:,} plans pass"
    if total == 1:
        return f"The plan {verdict(report.plans[0])}"
    parts = [f"{passed:,} of {total:,} plans pass"]
    if failed:
        parts.append(f"{failed:,} {'fails' if failed == 1 else 'fail'}")
    if unread:
        parts.append(f"{unread:,} could not be judged")
    return ", ".join(parts)


OWN = "kvplan"
"""Who allocated, where no engine measured."""


def measured_words(proof: Proof) -> str:
    """``measured on NVIDIA H200, 2026-11-26, by vLLM 0.33.0: 57,497 blocks (57,429 predicted), 7 requests``;
    what was measured as predicted has no second figure. kvplan's own run allocates: it cannot tell a wrong
    model."""
    who = f"{engine_title(proof.measured_by)} {proof.version}"
    parts = []
    for fact in proof.facts:
        shown = {amount: figure(amount, fact.unit) for amount in (fact.measured, fact.predicted)}
        noun = _NOUNS.get(fact.name)
        text = f"{noun} of {shown[fact.measured]}" if noun else f"{shown[fact.measured]} {fact.unit}"
        if fact.measured == 1 and not noun:
            text = text.removesuffix("s")
        parts.append(text + ("" if len(shown) == 1 else f" ({shown[fact.predicted]} predicted)"))
    if proof.measured_by == OWN:  # its own arithmetic on both sides: the room is proved, no engine's layout
        return f"allocated on {proof.device}, {proof.written}, by {who} itself: {', '.join(parts)}"
    return f"measured on {proof.device}, {proof.written}, by {who}: {', '.join(parts)}"


def title_of(name: str) -> str:
    """A figure's name in words; one that has no title of its own says its name."""
    return TITLES.get(name) or name.replace("_", " ").capitalize()


def figure(value: int, unit: str) -> str:
    """A figure of a fact's unit in words: ``8.00 GiB``, ``12.50``, ``1,024``."""
    sign, amount = ("-" if value < 0 else ""), abs(value)
    if unit == "bytes":
        return sign + size_words(amount)
    if unit == "share":
        return f"{sign}{amount // 100:,}.{amount % 100:02d} %"
    if unit == "millionths":
        hundredths = (amount + 5_000) // 10_000
        return f"{sign}{hundredths // 100:,}.{hundredths % 100:02d}"
    return f"{sign}{amount:,}"


def difference(before: int, after: int, unit: str) -> str:
    """With its sign: ``+2``, ``-1.50 GiB``; ``0`` where nothing changed."""
    change = after - before
    if change == 0:
        return "0"
    return ("+" if change > 0 else "") + figure(change, unit)


def difference_words(one: Difference) -> str:
    """``weights: 61.02 GiB → 61.40 GiB``; ``max_num_seqs: 256 → 1,024``."""

    def word(value: object) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return gib(value) if one.unit == "bytes" else f"{value:,}"
        return str(value)

    return f"{one.name}: {word(one.before)} → {word(one.after)}"


def facts_in_order(*plans: CheckedPlan | None) -> tuple[Fact, ...]:
    """One fact for each name and unit that any of the plans has, titled ones first in the titles' order."""
    found = dict.fromkeys((fact.name, fact.unit) for one in plans if one is not None for fact in one.facts)
    order = {name: at for at, name in enumerate(TITLES)}
    names = sorted(found, key=lambda key: order.get(key[0], len(order)))
    return tuple(Fact(name, 0, unit) for name, unit in names)
