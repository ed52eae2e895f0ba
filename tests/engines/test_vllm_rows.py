"""A row of a release that says it was asked of the engine is told apart by an answer of that engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvplan.engines.vllm.versions import VERSIONS, Rules
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_own_cases import own_cases
from tests.engines.vllm_random_cases import case_of_draw, settings_of_draw
from tests.engines.vllm_release_cases import case_of
from tests.engines.vllm_release_compare import minor, verdict
from tests.laws.sampling import some
from tests.recorded import record

CHANGES = [
    (name, value, since, until)
    for name, row in Rules.ROWS.items()
    for (_, value), (since, _), (until, _) in zip(row.steps, row.steps[1:], (*row.steps[2:], ("", None)))
    if row.asked and since in VERSIONS
]
"""Row, its value before a change, the first release after it, and the first after the next change."""


OWN = {case.name: case for case in own_cases()}


def _clear() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("kvplan."):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear") and getattr(kept, "__name__", "") != "_rules":
                    kept.cache_clear()


@contextmanager
def _as_before(name: str, value: Any, releases: tuple[str, ...]) -> Iterator[None]:
    """The releases with the value that a rule had before them."""
    rules = [vars(Rules.of(release)) for release in releases]
    now = rules[0][name]
    for one in rules:
        one[name] = value
    _clear()
    try:
        yield
    finally:
        for one in rules:
            one[name] = now
        _clear()


def _told_apart(release: str) -> Iterator[bool]:
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


@pytest.mark.laws
@pytest.mark.parametrize("row", some(sorted({change[0] for change in CHANGES}), 8, by=bool))
def test_a_row_that_was_asked_is_told_apart(row: str) -> None:
    for name, value, since, until in CHANGES:
        last = VERSIONS.index(until) if until in VERSIONS else None
        releases = VERSIONS[VERSIONS.index(since) : last]
        if name == row:
            with _as_before(name, value, releases):
                if any(any(_told_apart(release)) for release in releases):
                    return
    pytest.fail(f"no recorded answer tells {row} apart: add one, or say asked=False")
