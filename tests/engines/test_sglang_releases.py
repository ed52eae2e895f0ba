"""What older releases of SGLang answered by their own planner (scripts/sglang_releases.py)."""

from __future__ import annotations

import pytest

from kvplan.engines import ENGINES
from tests.engines.sglang_release_compare import unexplained
from tests.recorded import record

RECORD = record("sglang_releases")


@pytest.mark.parametrize("release", RECORD)
def test_pools_and_requests(release: str) -> None:
    """Tokens of both pools, requests, pages, slots, lengths, chunks, element types and backends are equal."""
    equal, explained, wrong = unexplained(release, RECORD[release])
    assert not wrong
    assert equal > 10 * explained


def test_the_known_releases_were_asked() -> None:
    minors = {".".join(release.split(".")[:3]) for release in RECORD}
    assert set(ENGINES["sglang"].versions) == minors | {"0.5.23"}
