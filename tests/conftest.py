"""One Hypothesis profile for the whole suite: no deadlines on a shared machine, the same examples each run.

``make laws`` draws more of them; ``KVPLAN_FUZZ=1000 make test`` draws that many fresh random examples of
every property instead.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tests run side by side: torch's threads would wait for one another."""
BESIDE = Path(__file__).resolve().parents[2] / "shared"
ELSEWHERE = {"gpu", "vllm", "llamacpp", "sglang", "browser"}
"""Markers of tests that need a machine or an engine of their own."""
UNINSTALLABLE = "torchvision"
"""No release on the index is built for torch without CUDA."""

gc.disable()
"""Until all tests are collected, which makes millions of objects and hardly any garbage."""

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=100 if os.environ.get("KVPLAN_LAWS") == "all" else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("KVPLAN_FUZZ", "1000")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuzz" if "KVPLAN_FUZZ" in os.environ else "repeatable")


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_stays() -> None:
    """Cards, tables and modules that earlier tests have read are out of the collector's sight: a validation
    collects some twenty times, and each would look at every one of them."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a collection that is not beside this checkout are left out: tests/data has its own of each."""
    if BESIDE.is_dir():
        return
    left = [item for item in items if item.get_closest_marker("beside")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is answered now")
    parser.addoption(
        "--nothing-else-skipped",
        action="store_true",
        help=f"a test that is skipped without one of these markers fails: {', '.join(sorted(ELSEWHERE))}",
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole module that is skipped: only for what pip cannot install beside the rest."""
    report = yield
    strict = collector.config.getoption("--nothing-else-skipped")
    if strict and report.skipped and UNINSTALLABLE not in str(report.longrepr):
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    strict = item.config.getoption("--nothing-else-skipped")
    if strict and report.skipped and not ELSEWHERE & {mark.name for mark in item.iter_markers()}:
        report.outcome = "failed"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many functions the cases are of. pytest's own line stays the last one."""
    cases = {
        report.nodeid
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    }
    functions = {case.split("[", 1)[0] for case in cases}
    if cases:
        terminalreporter.write_line(f"{len(functions):,} test functions, {len(cases):,} cases")
