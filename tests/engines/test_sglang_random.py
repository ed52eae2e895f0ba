"""Settings drawn by chance, as SGLang's own planners answered them (scripts/sglang_random.py)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.engines.sglang_random_cases import draws, question_of_draw, verdict
from tests.recorded import record

RECORD: dict[str, Any] = record("sglang_random")
RELEASES = {
    release: [{**entry, "asked": RECORD["cards"].get(entry["config"])} for entry in entries]
    for release, entries in RECORD["releases"].items()
}


@pytest.mark.parametrize("release", RELEASES)
def test_equal(release: str) -> None:
    """Tokens, requests, pages, slots, lengths, chunks, graphs, types and backends; or refused by both."""
    wrong = {
        f"{entry['config']} {entry['gpu']} {entry['args']}": fields
        for entry in RELEASES[release]
        if (fields := verdict(entry, release)[1])
    }
    assert wrong == {}


def test_the_record_has_every_kind() -> None:
    """Refusals as well as answers, drafts, stages, attention groups, every GPU."""
    entries = [entry for listed in RELEASES.values() for entry in listed]
    counts = Counter("refused" in entry["answer"] for entry in entries)
    assert counts[False] > counts[True] > 10
    assert {entry["gpu"] for entry in entries} >= {"h100", "h200", "a100", "l40s", "l4", "b200"}
    named = {name for entry in entries for name in entry["args"]}
    assert {"speculative_algorithm", "enable_dp_attention", "page_size", "kv_cache_dtype"} <= named


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.23"])
def test_the_same_draws_for_the_same_seed(release: str) -> None:
    """A draw is a question that SGLang can be asked: ranks that groups divide, settings that it knows."""
    first, again = draws(release, 7, 40), draws(release, 7, 40)
    assert first == again != draws(release, 8, 40)
    for entry in first:
        question = question_of_draw(entry)
        ranks = entry["args"].get("tp_size", 1)
        assert ranks % entry["args"].get("ep_size", 1) == 0
        assert ranks % entry["args"].get("dp_size", 1) == 0
        assert question["config"]
        assert (question["draft"] is not None) == ("draft" in entry)
        assert "attn_dp_size" not in entry["args"] or release == "0.5.23"
