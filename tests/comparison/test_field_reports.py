"""Start-up figures that people published: pool → tokens → concurrency, to the printed digit.

Every row of the collection that states model, settings, pool and tokens (or concurrency) is compared; those
that cannot agree are listed here with the reason.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from kvplan.api import compare
from kvplan.comparison import Comparison, Verdict
from kvplan.engines.observed import Observation, Refusal, Row, Setting, exact_count
from kvplan.engines.observed.printed import parse_count, parse_ratio
from kvplan.errors import KvplanError
from kvplan.files.cards.index import find_targets
from tests.recorded import record

# What a row's numbers cannot be compared for, by its id.
EXCEPTIONS = {
    "vllm13061-r1d14b-tp2": "the pool is one rank's and another one has less",
    "vllm21348-qwen3-235b": "the pool is one rank's and another one has less (-1.1 %)",
    "club-bench-matched-qwen": "names neither its release, the cache's format nor its draft",
    "club-bench-matched-gemma": "names neither its release nor the tokens of a step, which windows keep",
    "vllm51041-dsv4flash-h20": "its tokens are rounded to thousands (150,000 for 150,982)",
}


def _rows() -> list[dict[str, Any]]:
    return [
        row
        for row in record("field_reports")
        if row["available_kv_gib"] is not None
        and (row["kv_tokens"] is not None or row["max_concurrency_x"] is not None)
        and len(find_targets(row["model"] or "")) == 1
    ]


def _version(text: str | None) -> str | None:
    word = (text or "").replace("-", " ").split(" ")[0]
    return word if word[:1].isdigit() else None


def _observation(row: dict[str, Any]) -> Observation:
    flags = {
        name: value for name, value in (row["flags"] or {}).items() if name in _FLAGS and value is not None
    }
    settings = {name: Setting(value, 0, "report") for name, value in flags.items()}
    settings["tensor_parallel_size"] = Setting(row["tp"] or 1, 0, "report")
    if "no-enable-prefix-caching" in (row["flags"] or {}).get("other", []):
        settings["enable_prefix_caching"] = Setting(False, 0, "report")
    length, concurrency = row["max_concurrency_len"], row["max_concurrency_x"]
    return Observation(
        engine="vllm",
        engine_version=_version(row["engine_version"]),
        generation="V0" if "V0" in (row["engine_version"] or "") else None,
        source="report",
        settings=MappingProxyType(settings),
        refusal=_refusal(row),
        rows=(
            Row(
                available_kv_bytes=parse_count(f"{row['available_kv_gib']:.2f}", "GiB"),
                num_blocks=None if row["num_gpu_blocks"] is None else exact_count(row["num_gpu_blocks"]),
                kv_tokens=None if row["kv_tokens"] is None else exact_count(row["kv_tokens"]),
                max_concurrency=None if concurrency is None else parse_ratio(f"{concurrency:.2f}"),
                max_concurrency_tokens=None if length is None else exact_count(length),
            ),
        ),
    )


def _refusal(row: dict[str, Any]) -> Refusal | None:
    """V0 printed its concurrency before it refused a length that does not fit once."""
    if row["max_concurrency_x"] is None or row["max_concurrency_x"] >= 1:
        return None
    return Refusal("kv-cache-too-small", "", kv_tokens=exact_count(row["kv_tokens"]))


_FLAGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_dtype")


def _compare(row: dict[str, Any]) -> Comparison:
    return compare(row["model"], observation=_observation(row))


ROWS = _rows()


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_report_agrees(row: dict[str, Any]) -> None:
    found = _compare(row)
    compared = [each for each in found.rows if each.predicted is not None]
    assert compared
    if row["id"] in EXCEPTIONS:
        assert found.verdict is not Verdict.AGREES or not all(each.agrees for each in compared)
        return
    assert found.verdict is Verdict.AGREES, found.model_dump()
    assert all(each.agrees for each in compared), found.model_dump()


def test_exceptions_are_rows_of_the_collection() -> None:
    assert set(EXCEPTIONS) <= {row["id"] for row in ROWS}
    assert len(ROWS) - len(EXCEPTIONS) >= 15


def test_an_unseen_rank_is_named() -> None:
    row = next(row for row in ROWS if row["id"] == "vllm13061-r1d14b-tp2")
    texts = " ".join(each.explanation or "" for each in _compare(row).rows)
    assert "the log shows 1 of 2 ranks" in texts


def test_a_pool_of_another_model_does_not_agree() -> None:
    observation = Observation(
        engine="vllm",
        engine_version="0.19.0",
        rows=(
            Row(
                available_kv_bytes=parse_count("58.53", "GiB"),
                kv_tokens=exact_count(1_096_000),
                max_concurrency_tokens=exact_count(8192),
            ),
        ),
    )
    assert compare("qwen2.5-7b", observation=observation).agrees
    other = compare("llama-3.1-8b", observation=observation)
    assert other.verdict is Verdict.DIFFERS
    with pytest.raises(KvplanError):
        compare("no-such-model", observation=observation)
