"""An engine's Prometheus series for rules and boards: the name of each, by release."""

from __future__ import annotations

from kvplan.engines.base import parse_version
from kvplan.record import record

Names = tuple[tuple[str, str], ...]
"""(release that brought the name, name), newest first. Counters without ``_total``, histograms without
``_bucket``."""


@record(kw_only=True)
class Series:
    """One engine's page."""

    running: Names
    waiting: Names
    usage: Names = ()
    preemptions: Names = ()
    finished: Names = ()
    hits: Names = ()
    queries: Names = ()
    ttft: Names = ()
    tpot: Names = ()
    per: tuple[str, ...] = ("instance",)
    """the labels that tell its pools apart; ranks of one pool repeat each other"""
    label: str = ""
    """the one that holds the served model's name, "" where there is none"""
    switch: str = ""
    """the flag without which the server has no such page. preemptions, finished, hits and queries are
    counters, ttft and tpot histograms of seconds, usage a share of the pool."""


def name_of(names: Names, version: str) -> str | None:
    """The name in that release; None where it has none."""
    return next((name for since, name in names if parse_version(version) >= parse_version(since)), None)
