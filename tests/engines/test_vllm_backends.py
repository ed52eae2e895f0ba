"""Which attention backend runs where: as each release's own code says (scripts/record_backends.py)."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.backends.table import backend_rows, read_rows, row_of, rows_text
from kvplan.errors import KvplanError
from tests.engines.vllm_backend_cases import RELEASES, backend_cases
from tests.engines.vllm_cases import GIB
from tests.engines.vllm_compare import gpu_of
from tests.engines.vllm_release_cases import card_configs
from tests.engines.vllm_release_compare import verdict
from tests.recorded import record

SHARE = 1 if os.environ.get("KVPLAN_LAWS") == "all" else 6
RECORD = record("vllm_backends")
CASES = {case.name: case for case in backend_cases()}


@pytest.mark.parametrize("release", RELEASES)
def test_every_gpu_as_the_release_answers(release: str) -> None:
    """Blocks, bytes, tokens, groups on gfx942, gfx950, 7.0, 7.5, 8.0, 8.6 and 12.0; refusals are refused."""
    counts: Counter[str] = Counter()
    wrong = {}
    for case, entry in zip(CASES.values(), RECORD[release], strict=True):
        if zlib.crc32(f"{release} {case.name}".encode()) % SHARE:
            continue
        word, why = verdict(case, entry["answer"], release)
        counts[word] += 1
        if why:
            wrong[case.name] = why
    assert not wrong
    assert counts["equal"] >= 100 // SHARE


def test_the_recorded_cases_are_those_of_today() -> None:
    for release in RELEASES:
        assert [(entry["gpu"], entry["options"]) for entry in RECORD[release]] == [
            (case.gpu, case.options) for case in CASES.values()
        ]


def test_an_fp8_cache_on_ampere_goes_to_flashinfer() -> None:
    """Triton refuses it since 0.24; every image has FlashInfer, whose own row takes 8.0 and 8.6."""
    for gpu in ("a100-sxm-80gb", "rtx-3090", "a10g"):
        for version in ("0.24", "0.28", "0.33"):
            result = kvplan.size("llama-3.1-8b", engine=f"vllm@{version}", gpu=gpu, kv_cache_dtype="fp8",
                                 max_model_len=8192)  # fmt: skip
            assert result.refusal is None
            assert result.settings["attention_backend"] == "FLASHINFER"


@pytest.mark.parametrize(
    ("model", "why"),
    [("gpt-oss-20b", "Triton"), ("deepseek-v2-lite", "Triton MLA"), ("phi-3-mini-4k", "Triton")],
)
def test_what_flashinfer_does_not_take_stays_refused(model: str, why: str) -> None:
    """Sinks, latents, heads of 96: on 8.0 only Triton is left, which says no."""
    result = kvplan.size(model, engine="vllm@0.33", gpu="a100-sxm-80gb", kv_cache_dtype="fp8")
    assert result.refusal is not None
    assert why in result.refusal.message


def test_the_table_reads_back() -> None:
    rows = [row for rows in backend_rows().values() for row in rows]
    assert sorted(read_rows(rows_text(rows))) == sorted(rows)
    assert row_of("FLASHINFER_MLA_SPARSE_SM90", "0.29") is None
    sparse = row_of("FLASHINFER_MLA_SPARSE_SM90", "0.30")
    assert sparse is not None
    assert sparse.runs_on((9, 0))
    assert not sparse.runs_on((8, 0))
    assert sparse.takes_kv("fp8_e4m3")
    assert sparse.block_sizes() == ((64,), (), None)


def test_index_keys_in_mxfp4_take_their_own_pages() -> None:
    """DeepSeek-V4-Flash cut to 13 layers, 24 GiB of a B200, tp 4, fp8: 0.32's own planner answered 90,382
    blocks of 285,120 bytes, and with attention_config.indexer_kv_dtype mxfp4 98,328 of 262,080."""
    config = card_configs()["deepseek-v4-flash"]
    asked: dict[str, Any] = {"gpu": gpu_of("b200"), "kv_cache_memory": 24 * GIB, "kv_cache_dtype": "fp8"}
    for word, blocks, size in (("auto", 90382, 285120), ("mxfp4", 98328, 262080)):
        pool = kvplan.size(
            config, engine="vllm@0.32", tensor_parallel_size=4, settings={"indexer_kv_dtype": word}, **asked
        ).pool
        assert pool is not None
        assert (pool.num_blocks, pool.bytes_per_block) == (blocks, size)
    older = [
        kvplan.size(
            config, engine="vllm@0.26", tensor_parallel_size=4, settings={"indexer_kv_dtype": word}, **asked
        ).pool
        for word in ("fp8", "mxfp4")
    ]
    assert older[0] == older[1]


def test_index_keys_in_mxfp4_need_their_gpus() -> None:
    for gpu, served in (("b200-sxm-180gb", True), ("mi355x-288gb", True), ("h200-sxm-141gb", False)):
        found = kvplan.size("deepseek-v4-flash", engine="vllm@0.33", gpu=gpu, tensor_parallel_size=8,
                            max_model_len=8192, settings={"indexer_kv_dtype": "mxfp4"}).refusal  # fmt: skip
        assert (found is None) == served
    with pytest.raises(KvplanError, match="not known"):
        kvplan.size(
            "deepseek-v3.2", engine="vllm@0.33", gpu="b200-sxm-180gb", settings={"indexer_kv_dtype": "mxfp4"}
        )


@pytest.mark.parametrize(
    ("model", "gpu", "version", "kv", "serves"),
    [
        ("kimi-k2.6-nvfp4", "b200", "0.33", "auto", True),
        ("deepseek-r1", "b200", "0.33", "fp8", True),
        ("deepseek-r1", "b300", "0.21", "fp8", True),
        ("deepseek-r1", "b200", "0.20", "fp8", False),
        ("deepseek-r1", "b200", "0.33", "auto", False),
        ("deepseek-r1", "h200", "0.33", "fp8", False),
        ("glm-4.7-flash", "b200", "0.33", "fp8", False),
        ("deepseek-v3.2", "b200", "0.33", "fp8", False),
    ],
)
def test_tokenspeed_runs_where_its_class_says(
    model: str, gpu: str, version: str, kv: str, serves: bool
) -> None:
    """Named by users alone (vLLM's own post on EAGLE 3.1 starts Kimi K2.6 with it): fp8 caches, DeepSeek-R1's
    widths, compute capability 10."""
    result = kvplan.size(
        model,
        engine=f"vllm@{version}",
        gpu=gpu,
        tensor_parallel_size=4,
        attention_backend="TOKENSPEED_MLA",
        kv_cache_dtype=kv,
        kv_cache_memory="5GiB",
        max_model_len=8192,
        tokens=16,
    )
    assert (result.refusal is None) == serves
    if serves:
        assert result.settings["block_size"] in (32, 64)


@pytest.mark.parametrize(
    ("gpu", "kv", "row"),
    [("b200", "auto", 1152), ("b200", "fp8", 576), ("h200", "auto", 1), ("h200", "fp8", 1)],
)
def test_blocks_lie_whole_rows_apart_in_0_31_alone(gpu: str, kv: str, row: int) -> None:
    """DeepSeek-V3.2 with FLASHINFER_MLA_SPARSE: 0.31 rounds a block up to rows of the latent."""
    found = {}
    for version in ("0.30", "0.31", "0.32"):
        result = kvplan.size("deepseek-v3.2", engine=f"vllm@{version}", gpu=gpu, tensor_parallel_size=8,
                             kv_cache_dtype=kv, kv_cache_memory="40GiB")  # fmt: skip
        assert result.pool is not None
        found[version] = result.pool.bytes_per_block
    assert found["0.30"] % 576
    assert found["0.31"] == -(-found["0.30"] // row) * row
    if row == 1:
        assert found["0.31"] == found["0.32"]
    else:
        assert found["0.32"] == found["0.30"] < found["0.31"]
