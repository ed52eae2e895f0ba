"""A row of a release that says it was asked of the engine is told apart by an answer of that engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

from kvplan.engines.release_rules import ReleaseRules
from kvplan.engines.sglang.versions import VERSIONS as SGLANG_VERSIONS
from kvplan.engines.sglang.versions import Rules as SglangRules
from kvplan.engines.vllm.versions import VERSIONS as VLLM_VERSIONS
from kvplan.engines.vllm.versions import Rules as VllmRules
from tests.engines import sglang_random_cases
from tests.engines.sglang_release_compare import unexplained
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_own_cases import own_cases
from tests.engines.vllm_random_cases import case_of_draw, settings_of_draw
from tests.engines.vllm_release_cases import case_of
from tests.engines.vllm_release_compare import minor, verdict
from tests.laws.sampling import some
from tests.recorded import record


class Change(NamedTuple):
    """A row, its value before a change, the first release after it, and the first after the next change."""

    rules: type[ReleaseRules]
    row: str
    before: Any
    since: str
    until: str


RULES: dict[type[ReleaseRules], tuple[str, ...]] = {VllmRules: VLLM_VERSIONS, SglangRules: SGLANG_VERSIONS}
CHANGES = [
    Change(rules, name, before, since, until)
    for rules, versions in RULES.items()
    for name, row in rules.ROWS.items()
    for (_, before), (since, _), (until, _) in zip(row.steps, row.steps[1:], (*row.steps[2:], ("", None)))
    if row.asked and since in versions
]

OWN = {case.name: case for case in own_cases()}


def _clear() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("kvplan."):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear") and getattr(kept, "__name__", "") != "_rules":
                    kept.cache_clear()


@contextmanager
def _as_before(change: Change, releases: tuple[str, ...]) -> Iterator[None]:
    """The releases with the value that a rule had before them."""
    rules = [vars(change.rules.of(release)) for release in releases]
    kept = [one[change.row] for one in rules]
    for one in rules:
        one[change.row] = change.before
    _clear()
    try:
        yield
    finally:
        for one, value in zip(rules, kept, strict=True):
            one[change.row] = value
        _clear()


def _vllm_tells(release: str) -> Iterator[bool]:
    """For each recorded answer of the release, whether kvplan's is another."""
    answers, draws = record("vllm_releases"), record("vllm_random")
    configs = {**CONFIGS, **answers["configs"]}
    for full in (full for full in draws["releases"] if minor(full) == release):
        for entry in draws["releases"][full]:
            config = draws["configs"][entry["config"]]
            settings = settings_of_draw(entry, config)
            word, _ = verdict(case_of_draw(entry, config), entry["answer"], full, settings)
            yield word not in ("equal", "refused")
    for full in (full for full in answers["releases"] if minor(full) == release):
        for entry in answers["releases"][full]:
            case = case_of(entry["config"], entry["gpu"], configs[entry["config"]], entry["options"])
            yield bool(verdict(case, entry["answer"], full)[1])
    for full, own in record("vllm_own").items():
        for name in own if minor(full) == release else ():
            yield bool(verdict(OWN[name], own[name], full)[1])


def _sglang_tells(release: str) -> Iterator[bool]:
    draws, answers = record("sglang_random"), record("sglang_releases")
    for full in (full for full in draws["releases"] if _patch(full) == release):
        for entry in draws["releases"][full]:
            asked = {**entry, "asked": draws["cards"].get(entry["config"])}
            yield bool(sglang_random_cases.verdict(asked, full)[1])
    for full in (full for full in answers if _patch(full) == release):
        yield bool(unexplained(full, answers[full])[2])


def _patch(release: str) -> str:
    return ".".join(release.split(".")[:3])


TELLS = {VllmRules: _vllm_tells, SglangRules: _sglang_tells}


@pytest.mark.laws
@pytest.mark.parametrize(
    ("rules", "row"),
    some(sorted({change[:2] for change in CHANGES}, key=str), 24, by=itemgetter(0)),
    ids=lambda value: value if isinstance(value, str) else value.__module__.split(".")[2],
)
def test_a_row_that_was_asked_is_told_apart(rules: type[ReleaseRules], row: str) -> None:
    versions, tells = RULES[rules], TELLS[rules]
    for change in CHANGES:
        if (change.rules, change.row) == (rules, row):
            last = versions.index(change.until) if change.until in versions else None
            releases = versions[versions.index(change.since) : last]
            with _as_before(change, releases):
                if any(any(tells(release)) for release in releases):
                    return
    pytest.fail(f"no recorded answer tells {row} apart: add one, or say asked=False")
