"""Commands that vllm-project/recipes marks as verified on hardware (scripts/record_recipes.py)."""

from __future__ import annotations

import json
import os
import zlib

import kvplan
from kvplan.results import Verdict
from scripts.record_recipes import ENGINE, GPUS, PAGE, REASONS, facts, page, settings, verdict
from tests.recorded import record

FOUND = record("recipes")
COMMANDS = FOUND["commands"]
SHARE = 1 if os.environ.get("KVPLAN_LAWS") == "all" else 24


def settled(word: str) -> str:
    """What does not follow from the budget, whose figures move: whether vLLM's rules serve the command."""
    return "served" if word.startswith("answered") or "memory" in word else word


def test_every_verdict_still_holds() -> None:
    """Served stays served: a share of the commands each run, all with KVPLAN_LAWS=all."""
    drawn = [
        fact
        for fact in COMMANDS
        if fact["gpu"] and zlib.crc32(json.dumps(fact, sort_keys=True).encode()) % SHARE == 0
    ]
    assert len(drawn) > 500 // SHARE
    now = {json.dumps(fact): (settled(fact["verdict"]), settled(verdict(fact))) for fact in drawn}
    assert {fact: words for fact, words in now.items() if words[0] != words[1]} == {}


def test_a_verified_command_is_refused_for_a_reason_only() -> None:
    """No error, no engine that would not start, no class that is missing."""
    words = {fact["verdict"] for fact in COMMANDS if fact["gpu"]}
    assert words <= {
        "answered",
        "answered without a budget",
        "no card",
        "no rule",
        *(f"refused: {code}" for code in REASONS),
    }
    known = [fact for fact in COMMANDS if fact["gpu"] and fact["verdict"] not in ("no card", "no rule")]
    answered = [fact for fact in known if fact["verdict"].startswith("answered")]
    assert len(answered) > 0.94 * len(known)


def test_a_refusal_by_a_likely_figure_says_so() -> None:
    """vLLM's own arithmetic refuses only where no figure of the interval serves the request."""
    words = {fact["verdict"] for fact in COMMANDS}
    assert {"refused: not-enough-memory", "refused: not-enough-memory by the likely figure"} <= words
    for fact in COMMANDS:
        if fact["verdict"] == "refused: not-enough-memory":
            result = kvplan.size(fact["model"], engine=ENGINE, gpu=fact["gpu"], **settings(fact))
            assert result.budget is not None
            assert result.per_gpu.reserved_bytes_per_request > result.budget.kv_pool_high_bytes, fact


def test_the_screen_says_that_an_estimate_refuses() -> None:
    """A start that the interval holds is no flat no."""
    fact = next(
        one for one in COMMANDS if one["verdict"].endswith("by the likely figure") and len(one["flags"]) < 4
    )
    result = kvplan.size(fact["model"], engine=ENGINE, gpu=fact["gpu"], **settings(fact))
    assert result.refusal is not None
    assert "Unlikely: vLLM" in str(result)
    assert result.verdict is Verdict.UNLIKELY
    assert "It may start: the interval reaches" in " ".join(str(result).split())
    own = kvplan.size("llama-3.1-8b", engine=ENGINE, gpu="rtx-4090")
    assert str(own).startswith("No: ")  # the start checks the model's own length
    short = kvplan.size("llama-3.1-8b", engine=ENGINE, gpu="rtx-4090", tokens=8192)
    assert str(short).startswith("Yes: ")  # a server for such requests is started for them


def test_the_page_is_what_the_record_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(COMMANDS, FOUND["revision"])


def test_flags_are_read_as_a_server_reads_them() -> None:
    words = "--tensor-parallel-size 8 --block-size=64 --no-enable-prefix-caching --trust-remote-code".split()
    more = [
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 2}',
        "--kv-cache-dtype",
        "fp8",
    ]
    (fact,) = facts([{"model": "a/b", "hardware": "h200", "nodes": 1, "first": "", "argv": [*words, *more]}])
    assert fact["gpu"] == GPUS["h200"]
    assert settings(fact) == {
        "tensor_parallel_size": 8,
        "block_size": 64,
        "enable_prefix_caching": False,
        "speculative_method": "mtp",
        "num_speculative_tokens": 2,
        "kv_cache_dtype": "fp8",
    }
