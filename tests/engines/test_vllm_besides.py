"""LoRA adapters and separate draft models: kvplan beside vLLM 0.32's own buffers and planner.

The answers are recorded (tests/engines/vllm_besides.py); a test with the marker ``vllm`` asks again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.architectures.inventory import inventory_of
from kvplan.dtypes import scalar
from kvplan.engines.vllm.classes import class_of, names
from kvplan.engines.vllm.start.adapters import slots_of, wrapped_of
from kvplan.errors import KvplanError
from kvplan.weights.adapters import vllm_bytes
from kvplan.weights.ranks import Parallel
from tests.engines.test_vllm_live import RELEASE
from tests.engines.vllm_besides import LORA, MEMORY, RECORD, ask, questions
from tests.engines.vllm_compare import figures, gpu_of
from tests.laws.sampling import for_each

CARDS: dict[str, Any] = json.loads((Path(__file__).parent / "vllm_lora_cards.json").read_text())
"""Card → case → bytes of each pipeline stage: vLLM's manager, for every architecture."""
CARD_CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "a": (1, 1, {"max_loras": 4, "max_lora_rank": 16}),
    "b": (2, 1, {"max_loras": 2, "max_lora_rank": 64}),
    "c": (2, 1, {"max_loras": 3, "max_lora_rank": 32, "fully_sharded_loras": True}),
    "d": (4, 1, {"max_loras": 1, "max_lora_rank": 8, "enable_expert_parallel": True}),
    "e": (1, 2, {"max_loras": 1, "max_lora_rank": 16}),
}
"""tensor parallel size, pipeline parallel size, options."""
RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
QUESTIONS = questions()


def adapters(config: Any, args: dict[str, Any], dtype: str = "bfloat16") -> list[int]:
    """Bytes of the adapters on each stage by kvplan's rules."""
    model = load_model(config)
    options = {
        key: value for key, value in args.items() if key.endswith(("loras", "rank", "dtype", "modules"))
    }
    word = options.pop("dtype", dtype)
    settings = make_settings(enable_lora=True, **options)
    slots = slots_of(settings, scalar(word))
    assert slots is not None
    assert model.config is not None
    parallel = Parallel(
        args.get("tensor_parallel_size", 1),
        args.get("pipeline_parallel_size", 1),
        enable_expert_parallel=args.get("enable_expert_parallel", False),
    )
    return list(vllm_bytes(inventory_of(model.config), wrapped_of(model, "0.32"), slots, parallel))


def check(name: str, answer: dict[str, Any]) -> None:
    """kvplan's figures are vLLM's."""
    asked = QUESTIONS[name]
    if name.startswith("lora/"):
        if "refused" not in answer:
            assert adapters(asked["config"], asked["args"]) == answer["adapters"]
        return
    args = dict(asked["args"])
    speculative = args.pop("speculative_config")
    result = kvplan.size(
        asked["config"],
        engine="vllm@0.32",
        gpu=gpu_of("h100"),
        kv_cache_memory=MEMORY,
        settings={
            "speculative_model": asked["draft"],
            "speculative_method": speculative["method"],
            "num_speculative_tokens": speculative["num_speculative_tokens"],
        },
        **args,
    )
    assert figures(result) == answer


def test_the_record_answers_the_cases() -> None:
    assert set(RECORDED) == set(QUESTIONS)
    refused = [name for name, answer in RECORDED.items() if "refused" in answer]
    assert refused == ["lora/deepseek-v2/half"]  # no kernel for latents in float32


@for_each("name", QUESTIONS)
def test_recorded(name: str) -> None:
    check(name, RECORDED[name])


@for_each("card", CARDS)
def test_every_architecture(card: str) -> None:
    """Published models: the buffers of vLLM's own manager, to the byte."""
    for case, expected in CARDS[card].items():
        tp, pp, options = CARD_CASES[case]
        args = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, **options}
        assert adapters(card, args) == expected, case


def test_no_row_without_proof() -> None:
    proved = {load_model(card).architecture for card in CARDS} | {"LlavaForConditionalGeneration"}
    assert {name for name in names() if class_of(name).lora is not None} <= proved


@pytest.mark.vllm
@pytest.mark.skipif(RELEASE is None or not RELEASE.startswith("0.32."), reason="vLLM 0.32 is not installed")
def test_live() -> None:
    answers = ask(sys.executable)
    for name, answer in answers.items():
        check(name, answer)


def test_a_line_of_the_budget_that_the_pool_lacks() -> None:
    asked: dict[str, Any] = {"engine": "vllm@0.32", "gpu": "h100", "compile_cache": "warm"}
    plain = kvplan.size("llama-3.1-8b", **asked)
    lora = kvplan.size(
        "llama-3.1-8b", **asked, settings={"enable_lora": True, "max_loras": 4, "max_lora_rank": 64}
    )
    assert plain.budget is not None
    assert lora.budget is not None
    (line,) = (line for line in lora.budget.lines if line.name == "LoRA adapters")
    once, twice = (
        next(line.bytes for line in one.lines if line.name == "CUDA graphs")
        for one in (plain.budget, lora.budget)
    )
    expected = adapters("llama-3.1-8b", {"max_loras": 4, "max_lora_rank": 64})
    assert [line.bytes] == expected
    assert line.low_bytes == line.high_bytes == line.bytes
    assert plain.budget.kv_pool_bytes - lora.budget.kv_pool_bytes == line.bytes + twice - once
    assert (lora.settings["max_loras"], lora.settings["max_lora_rank"]) == (4, 64)


def test_refusals() -> None:
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("dbrx", {}, "takes no LoRA adapters"),
        ("llama-3.1-8b", {"fully_sharded_loras": True, "max_lora_rank": 8, "tp": 16}, "cannot be divided"),
    )
    for model, options, words in cases:
        result = kvplan.size(model, gpu="h100", settings={"enable_lora": True}, **options)
        assert result.refusal is not None
        assert words in result.refusal.message
    with pytest.raises(KvplanError, match="max_lora_rank is 48"):
        kvplan.size("llama-3.1-8b", settings={"enable_lora": True, "max_lora_rank": 48})
    unknown = kvplan.size("gpt2", gpu="h100", settings={"enable_lora": True})
    assert unknown.budget is None
    assert any("is not known" in text for text in unknown.warnings)
    for model, release in (("llama-3.1-8b", "0.19"), ("qwen3-30b-a3b", "0.29")):
        assert (
            kvplan.size(model, engine=f"vllm@{release}", gpu="h100", settings={"enable_lora": True}).budget
            is None
        )


def test_more_of_everything_takes_more() -> None:
    """Slots and rank multiply; targets leave out; tensor parallelism never adds."""
    for config in LORA.values():
        one = adapters(config, {"max_loras": 1, "max_lora_rank": 16})[0]
        assert one < adapters(config, {"max_loras": 2, "max_lora_rank": 16})[0] <= 2 * one
        assert one < adapters(config, {"max_loras": 1, "max_lora_rank": 32})[0]
        assert (
            one > adapters(config, {"max_loras": 1, "max_lora_rank": 16, "lora_target_modules": "o_proj"})[0]
        )
        assert adapters(config, {"max_loras": 1, "tensor_parallel_size": 2})[0] < one * 1.02


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_graphs_are_captured_again_with_adapters(runner: str) -> None:
    """Of the V2 runner the piecewise ones count again, of V1 all; buffers and sums do not."""

    def graphs(**options: Any) -> Any:
        asked = {"engine": "vllm@0.32", "gpu": "h100", "model_runner": runner, **options}
        budget = kvplan.size("llama-3.1-8b", **asked).budget
        assert budget is not None
        return next(line for line in budget.lines if line.name == "CUDA graphs")

    plain, lora = graphs(), graphs(enable_lora=True)
    assert plain.bytes < lora.bytes <= 2 * plain.bytes
    assert lora.low_bytes == plain.low_bytes
    assert lora.high_bytes == plain.high_bytes + plain.bytes
