"""Which model runner serves: by release, class and settings; and on what kind of board a GPU sits."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.engines.vllm.memory import coefficients as boards
from kvplan.engines.vllm.memory.coefficients import board_of
from kvplan.engines.vllm.start.runner import V1, V2, row_of, rows, runner_of
from kvplan.files.gpus.find import load_gpu
from kvplan.own_options import OwnOptions
from kvplan.settings import Settings


@pytest.mark.parametrize(
    ("name", "releases"),
    [
        ("Qwen/Qwen3-8B", {"0.21": V1, "0.22": V2, "0.24": V2, "0.33": V2}),
        ("meta-llama/Llama-3.1-8B-Instruct", {"0.22": V1, "0.23": V2, "0.28": V2}),
        ("Qwen/Qwen2.5-7B-Instruct", {"0.24": V1, "0.25": V2}),
        ("Qwen/Qwen3-8B-AWQ", {"0.22": V1, "0.23": V1, "0.24": V2}),
        ("Qwen/Qwen3-30B-A3B", {"0.24": V1, "0.28": V1, "0.29": V2}),
        ("deepseek-ai/DeepSeek-V2", {"0.23": V1, "0.24": V2}),
        ("deepseek-ai/DeepSeek-V4-Pro", {"0.27": V1, "0.28": V2}),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", {"0.28": V1, "0.29": V2}),
        ("openai/gpt-oss-120b", {"0.28": V1, "0.31": V2}),
    ],
)
def test_the_release_decides(name: str, releases: dict[str, str]) -> None:
    model = kvplan.load_model(name)
    assert {release: runner_of(model, Settings(), release) for release in releases} == releases


def test_a_draft_that_it_does_not_run_leaves_the_first_runner() -> None:
    model = kvplan.load_model("Qwen/Qwen3-8B")
    asked = Settings(speculative_method="ngram", num_speculative_tokens=3)
    assert [runner_of(model, asked, release) for release in ("0.24", "0.31", "0.32")] == [V1, V1, V2]
    eagle = Settings(speculative_method="eagle3", num_speculative_tokens=3)
    assert runner_of(model, eagle, "0.24") == V2
    staged = Settings(speculative_method="eagle3", num_speculative_tokens=3, pipeline_parallel_size=2)
    assert [runner_of(model, staged, release) for release in ("0.24", "0.29", "0.30")] == [V1, V1, V2]


def test_quantisation_asked_for_counts_where_only_plain_classes_are_served() -> None:
    model = kvplan.load_model("Qwen/Qwen3-8B")
    assert [runner_of(model, Settings(quantization="fp8"), release) for release in ("0.23", "0.24")] == [
        V1,
        V2,
    ]


def test_what_is_asked_for_wins() -> None:
    model = kvplan.load_model("Qwen/Qwen3-8B")
    for word in (V1, V2):
        asked = Settings(own=OwnOptions.of({"model_runner": word}))
        assert {runner_of(model, asked, release) for release in ("0.21", "0.24", "0.33")} == {word}


def test_amd_keeps_the_first_runner_for_some() -> None:
    model = kvplan.load_model("deepseek-ai/DeepSeek-V4-Pro")
    assert runner_of(model, Settings(gpu=load_gpu("mi300x")), "0.28") == V1


def test_the_rows_rise() -> None:
    sinces = [tuple(map(int, row.since.split("."))) for row in rows()]
    assert sinces == sorted(set(sinces))
    assert row_of("0.1").serves == "none"
    assert row_of("9.9").serves == "all"


@pytest.mark.parametrize(
    ("gpu", "board"),
    [
        ("h100", boards.NVSWITCH),
        ("h200", boards.NVSWITCH),
        ("a100-sxm-40gb", boards.NVSWITCH),
        ("h100-pcie", boards.PCIE),
        ("h100-nvl", boards.PCIE),
        ("a100-pcie-80gb", boards.PCIE),
        ("l40s", boards.PCIE),
        ("rtx-3090", boards.GEFORCE),
        ("rtx-pro-6000", boards.PCIE),
        ("b200", boards.BLACKWELL),
        ("gb200", boards.RACK),
        ("gb300", boards.RACK),
        ("gb10", boards.UNIFIED),
        ("mi300x", boards.OTHER),
    ],
)
def test_boards(gpu: str, board: str) -> None:
    assert board_of(load_gpu(gpu)) == board
