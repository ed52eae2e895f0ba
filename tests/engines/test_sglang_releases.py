"""What older releases of SGLang answered by their own planner (scripts/sglang_releases.py)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.sglang.start.versions import VERSIONS, later_classes
from kvplan.errors import KvplanError
from scripts.make_engine_classes import later_classes as written
from tests.engines.sglang_release_compare import PLACES, places, unexplained
from tests.recorded import record

RECORD = record("sglang_releases")


@pytest.mark.parametrize("release", RECORD)
def test_pools_and_requests(release: str) -> None:
    """Tokens of both pools, requests, pages, slots, lengths, chunks, element types and backends are equal."""
    equal, explained, wrong = unexplained(release, RECORD[release])
    assert not wrong
    assert equal > 9 * explained


def test_a_difference_points_to_its_rule() -> None:
    """Files that are there, of every field that may differ."""
    root = Path(__file__).resolve().parents[2]
    assert places("chunk: 2048 for 4096, graph: 24 for 48") == [
        "kvplan/engines/sglang/start/memory_defaults.py",
        "kvplan/engines/sglang/start/memory_defaults.py, start/arguments.py",
        "kvplan/engines/sglang/start/versions.py",
    ]
    for field in PLACES:
        for file in ", ".join(places(f"{field}: 1 for 2")).replace("kvplan/engines/sglang/", "").split(", "):
            assert (root / "kvplan/engines/sglang" / file).is_file()


def test_the_known_releases_were_asked() -> None:
    minors = {".".join(release.split(".")[:3]) for release in RECORD}
    assert set(ENGINES["sglang"].versions) == minors | {"0.5.23"}


def test_fractions_were_asked_since_0_5_16() -> None:
    """Of these the record has them; older ones were asked too, or read from their source."""
    for release, answers in RECORD.items():
        if tuple(map(int, release.split(".")[:3])) >= (0, 5, 16):
            assert any("fraction" in answer for answer in answers.values()), release


GIB = 2**30


def shown(model: str, version: str, gpu: str | None = "h100-sxm-80gb", **options: Any) -> Any:
    asked: dict[str, Any] = {"kv_cache_memory": 5 * GIB, "max_model_len": 2048, **options}
    result = kvplan.size(model, engine=f"sglang@{version}", gpu=gpu, **asked)
    assert result.refusal is None, result.refusal
    return result.settings


@pytest.mark.parametrize(
    ("model", "since", "field", "options", "before", "after"),
    [
        ("qwen3-next-80b-a3b", "0.5.14", "state_slots_per_request", {"tensor_parallel_size": 4}, 3, 5),
        ("kimi-linear-48b-a3b", "0.5.16", "state_slots_per_request", {"tensor_parallel_size": 4}, 3, 5),
        ("llama-3.1-8b", "0.5.22", "cuda_graph_max_bs", {"max_num_seqs": 16}, 256, 16),
        ("qwen3-vl-8b", "0.5.20", "decode_attention_backend", {}, None, "flashinfer"),
    ],
)
def test_a_rule_begins_with_its_release(
    model: str, since: str, field: str, options: dict[str, Any], before: object, after: object
) -> None:
    """The release before still has the other; none goes back."""
    place = VERSIONS.index(since)
    kept = [shown(model, version, **options).get(field) for version in VERSIONS[place - 1 :]]
    assert kept == [before, *[after] * (len(kept) - 1)]


def test_borrowed_tokens_need_no_index_keys_since_0_5_18() -> None:
    """Of GLM-5.3's 78 layers most borrow; before, all had keys of 132 bytes."""
    old, new = (
        shown("glm-5.3", version, gpu=None)["max_total_num_tokens"] for version in ("0.5.17", "0.5.18")
    )
    assert old // 64 == 5 * GIB // (78 * (576 * 2 + 132)) // 64
    assert 1.07 < new / old < 1.09


def test_what_is_not_known_of_a_release_is_said() -> None:
    with pytest.raises(KvplanError, match=r"before 0\.4\.6"):
        kvplan.size("llama-3.1-8b", engine="sglang@0.4.5")
    for version in VERSIONS:  # all of them were asked for their memory fraction too
        assert not any("memory fraction" in words for words in size("llama-3.1-8b", version).warnings)


def size(model: str, version: str, **options: Any) -> Any:
    asked: dict[str, Any] = {"gpu": "h100-sxm-80gb", "kv_cache_memory": 5 * GIB, **options}
    return kvplan.size(model, engine=f"sglang@{version}", **asked)


def test_deepseek_v4_since_it_is_served() -> None:
    """Its class came with 0.5.12; states of requests with 0.5.15; pages as they are padded with 0.5.21."""
    asked: dict[str, Any] = {"kv_cache_memory": 40 * GIB + 7, "gpu": "h100-sxm-80gb"}
    answers = {
        version: kvplan.size("deepseek-v4-flash", engine=f"sglang@{version}", **asked)
        for version in ("0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.20", "0.5.21", "0.5.23")
    }
    assert answers.pop("0.5.11").refusal.code == "unsupported-model"  # type: ignore[union-attr]
    tokens = [answer.settings["max_total_num_tokens"] for answer in answers.values()]
    assert tokens == sorted(tokens)
    assert [tokens[1], tokens[4], tokens[5]] == [2_701_568, 5_221_376, 5_677_312]
    assert len(set(tokens)) == 4


def test_states_and_drafts_exclude_each_other_until_0_5_14() -> None:
    draft: dict[str, Any] = {
        "speculative_method": "mtp",
        "num_speculative_tokens": 3,
        "tensor_parallel_size": 8,
    }
    refusals = {
        version: kvplan.size(
            "qwen3-next-80b-a3b", engine=f"sglang@{version}", kv_cache_memory=30 * GIB, **draft
        )
        for version in ("0.5.9", "0.5.10", "0.5.13", "0.5.14")
    }
    assert [version for version, result in refusals.items() if result.refusal] == ["0.5.10", "0.5.13"]


def test_a_class_is_refused_before_its_release() -> None:
    for older, newer in pairwise(VERSIONS):
        assert later_classes(older) >= later_classes(newer)
    assert not later_classes(VERSIONS[-1])


def test_the_table_of_classes_is_made_of_the_releases(tmp_path: Path) -> None:
    """A class counts from the release from which on all have it."""
    for release, names in (
        ("0.5.8", "A"),
        ("0.5.9.post1", "A, B, C"),
        ("0.5.10", "A, B"),
        ("0.5.11", "A, B, C"),
    ):
        folder = tmp_path / f"sglang-{release}" / "sglang/srt/models"
        folder.mkdir(parents=True)
        (folder / "some.py").write_text(f"EntryClass = [{names}]\n", encoding="utf-8")
    head, *rows = written(tmp_path).splitlines()
    assert "(0.5.8, 0.5.9, 0.5.10, 0.5.11)" in head
    assert rows == ["B\t0.5.9", "C\t0.5.11"]


@pytest.mark.parametrize("version", ["0.5.8", "0.5.16", "0.5.23"])
@pytest.mark.parametrize(("ranks", "served"), [(2, True), (4, False), (8, False)])
def test_a_rank_holds_whole_blocks_of_scales(version: str, ranks: int, served: bool) -> None:
    """768 rows of an expert, a scale every 128: three blocks of two ranks; whole experts are no matter."""
    asked: dict[str, Any] = {
        "engine": f"sglang@{version}",
        "kv_cache_memory": GIB,
        "tensor_parallel_size": ranks,
    }
    refusal = kvplan.size("Qwen/Qwen3-30B-A3B-FP8", **asked).refusal
    assert (refusal is None) is served
    assert refusal is None or refusal.code == "tensor-parallel"
    assert kvplan.size("Qwen/Qwen3-30B-A3B-FP8", **asked, enable_expert_parallel=True).refusal is None
    assert kvplan.size("Qwen/Qwen3-30B-A3B", **asked).refusal is None
