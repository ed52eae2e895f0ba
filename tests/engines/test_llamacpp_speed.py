"""Tokens a second of one request under llama.cpp: held against published figures, and lawful."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

import kvplan
from kvplan.engines.llamacpp.memory.reads import reads
from kvplan.engines.llamacpp.memory.speed import TABLE, class_of, decode, table
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.settings import Settings, with_settings
from scripts.desk_speed import FILE, OUT, Row, document, fit, inside, read_rows, table_text


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows()


def test_the_page_is_that_of_the_rows_and_the_constants(rows: list[Row]) -> None:
    assert rows
    assert OUT.read_text(encoding="utf-8") == document(table()[0]), "python -m scripts.desk_speed --write"
    assert TABLE.read_text(encoding="utf-8") == table_text(table()[0])


def test_the_constants_are_fitted_to_what_is_not_held_out(rows: list[Row]) -> None:
    own = [row for row in rows if row.kind == "nvidia-unified" and not row.held_out]
    assert fit(own) == table()[0]["nvidia-unified"]


def test_held_out_figures_lie_in_the_interval(rows: list[Row]) -> None:
    rates = table()[0]
    held = [row for row in rows if row.held_out]
    assert len({row.raw["source"] for row in held}) >= 8
    assert sum(inside(row, rates[row.kind]) for row in held) >= 0.9 * len(held)
    assert median(abs(1 / row.ratio(rates[row.kind]) - 1) for row in held) < 0.15


def test_every_row_names_a_source_of_the_file() -> None:
    data = load_yaml_file(FILE, name=FILE.name).data
    assert {row["source"] for row in data["rows"]} == set(data["sources"])


def _settings(gpu: str, build: str, **own: object) -> Settings:
    settings = Settings(gpu=kvplan.load_gpu(gpu), quantization=build, requests=1)
    return with_settings(settings, own) if own else settings


def _pace(model: str, gpu: str, build: str, tokens: int, **own: object) -> float:
    found = decode(kvplan.load_model(model), _settings(gpu, build, **own), tokens)
    assert found is not None
    assert 0 < found.low <= found.tokens_per_second <= found.high
    return found.tokens_per_second


@pytest.mark.parametrize("model", ["qwen3-8b", "gemma-3-12b", "qwen3.6-35b-a3b", "gpt-oss-20b"])
def test_what_is_read_decides(model: str) -> None:
    """Never faster with more tokens in the cache, more bits, or more layers and experts in host memory."""
    lengths = [_pace(model, "rtx-4090", "q4_k_m", tokens) for tokens in (1, 4096, 32768, 131072)]
    assert all(later <= earlier for earlier, later in pairwise(lengths))
    bits = [_pace(model, "rtx-4090", build, 4096) for build in ("q3_k_m", "q4_k_m", "q6_k", "q8_0", "f16")]
    assert all(more <= fewer for fewer, more in pairwise(bits))
    layers = [_pace(model, "rtx-4090", "q4_k_m", 4096, n_gpu_layers=count) for count in (99, 20, 10, 2, 0)]
    assert all(fewer <= more for more, fewer in pairwise(layers))
    experts = [_pace(model, "rtx-4090", "q4_k_m", 4096, n_cpu_moe=count) for count in (0, 4, 20, 99)]
    assert all(fewer <= more for more, fewer in pairwise(experts))


def test_a_token_reads_every_matrix_and_of_experts_those_that_it_passes() -> None:
    """Llama-3.1-8B in f16: 16,060,522,496 B less the embedding of 128,256 × 4,096 that is looked up; the
    norms of its layers in f32."""
    model = kvplan.load_model("llama-3.1-8b")
    (gpu, host) = reads(model, _settings("rtx-4090", "f16"), 1)
    norms = 4096 * (4 * 64 - 2 * 65)  # the last one is left out
    assert gpu.weights == 16_060_522_496 - 128_256 * 4096 * 2 + norms
    assert (gpu.experts, gpu.layers, gpu.routed, host.bytes) == (0, 32, 0, 0)
    sparse = kvplan.load_model("qwen3-30b-a3b")
    (gpu, _) = reads(sparse, _settings("rtx-4090", "f16"), 1)
    assert gpu.experts == 48 * 3 * 2048 * 768 * 2 * 8  # 8 of 128
    (gpu, host) = reads(sparse, _settings("rtx-4090", "f16", n_cpu_moe=12), 1)
    assert host.experts == 12 * 3 * 2048 * 768 * 2 * 8


@pytest.mark.parametrize("gpu", ["h100", "a100-sxm-80gb", "mi300x", "arc-b580", "p40", "v100-sxm2-32gb"])
def test_no_speed_is_said_of_gpus_without_rows(gpu: str) -> None:
    assert class_of(kvplan.load_gpu(gpu)) not in table()[0]
    assert decode(kvplan.load_model("qwen3-8b"), _settings(gpu, "q4_k_m"), 1) is None


def test_a_narrower_cache_is_charged_as_f16() -> None:
    wide = _pace("qwen3-8b", "rtx-4090", "q4_k_m", 32768)
    assert _pace("qwen3-8b", "rtx-4090", "q4_k_m", 32768, cache_type_k="q8_0", cache_type_v="q8_0") == wide
