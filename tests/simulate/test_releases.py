"""Rules by release: what is known, what is refused, and where they differ."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError, RefusedError
from kvplan.simulate import Arrival, Engine, Group, StepTime, Trace, simulate
from kvplan.simulate.releases import KNOWN, rules_of
from scripts.check_scheduler import difference

RECORD = Path(__file__).with_name("vllm_scheduler_releases.json.gz")
SCENARIOS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["scenarios"]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_recorded_releases(name: str) -> None:
    assert difference(SCENARIOS[name], Path()) is None


def test_every_release_before_the_newest_is_recorded() -> None:
    asked = {".".join(one["engine"]["release"].split(".")[:2]) for one in SCENARIOS.values()}
    assert asked == set(KNOWN) - {"0.32"}  # that one has a file of its own


def test_a_prompt_alone_is_held_back_until_0_30() -> None:
    def steps(release: str) -> int:
        engine = Engine(blocks=100, threshold=64, release=release)
        return simulate(Trace([Arrival(0, 640, 1)], 16), engine, StepTime()).steps

    assert steps("0.30.1") == 10
    assert steps("0.31.0") == 1


def test_unknown_releases_are_refused() -> None:
    for release in ("0.19", "1.0", "main", ""):
        with pytest.raises(RefusedError, match="not known"):
            rules_of(release)
    with pytest.raises(KvplanError, match="retention"):
        simulate(Trace([], 16), Engine(blocks=100, retention=0, release="0.28"), StepTime())
    engine = Engine(blocks=100, groups=(Group("state"), Group()), states="align", release="0.31")
    with pytest.raises(RefusedError, match="block boundaries"):
        simulate(Trace([], 16), engine, StepTime())
