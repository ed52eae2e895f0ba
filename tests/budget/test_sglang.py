"""SGLang's budget: pre · fraction − weights − images, with an interval."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.engines.sglang.budget import context_of
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import load_gpu
from kvplan.report.schema import answer_schema
from kvplan.results import Budget, SizeResult
from kvplan.units import GIB, MIB
from tests.budget.test_fitting import TINY
from tests.report.schemas import answer_errors


def sized(model: Any = "qwen3-32b", **options: Any) -> SizeResult:
    return kvplan.size(model, **{"engine": "sglang", "gpu": "h200", **options})


def budget_of(result: SizeResult) -> Budget:
    assert result.budget is not None
    return result.budget


def lines(result: SizeResult) -> dict[str, int]:
    return {entry.name: entry.bytes for entry in budget_of(result).lines}


def test_the_slack_is_a_part_of_what_was_free_before_the_weights() -> None:
    result = sized()
    found, budget = lines(result), budget_of(result)
    before = budget.total_bytes - found["context, buffers"]
    assert found["activations, graphs"] == ceil(before * (1 - Fraction(903, 1000)))
    assert sum(found.values()) + budget.kv_pool_bytes == budget.total_bytes
    assert budget.kv_pool_low_bytes < budget.kv_pool_bytes < budget.kv_pool_high_bytes
    assert result.pool is not None
    assert result.pool.bytes == budget.kv_pool_bytes
    assert answer_errors(answer_schema("size"), result.model_dump()) == []


def test_a_recorded_start_lies_in_the_interval() -> None:
    """16.46 GiB and 367,404 tokens on 4 H100 with a fraction of 0.93 (vllm-project/vllm #21348)."""
    result = sized("Qwen/Qwen3-235B-A22B-FP8", gpu="h100", tp=4, mem_fraction_static="0.93")
    budget = budget_of(result)
    assert budget.kv_pool_low_bytes < 16.46 * GIB < budget.kv_pool_high_bytes
    assert abs(budget.kv_pool_bytes - 16.46 * GIB) < 16.46 * GIB * 0.05
    assert result.pool is not None
    assert abs(result.pool.kv_tokens - 367_404) < 367_404 * 0.05


def test_the_fraction_as_given() -> None:
    result = sized(mem_fraction_static="0.8")
    assert result.settings["mem_fraction_static"] == 0.8
    found = lines(result)
    before = budget_of(result).total_bytes - found["context, buffers"]
    assert found["activations, graphs"] == ceil(before * Fraction(2, 10))
    for wrong in ("0", "1", "1.5", "x"):
        with pytest.raises(KvplanError) as caught:
            sized(mem_fraction_static=wrong)
        assert caught.value.code == "bad-setting"


def test_too_small_a_fraction_names_the_smallest_that_works() -> None:
    asked = make_settings(gpu="h200", mem_fraction_static="0.4")
    result = ask(kvplan.load_model("qwen3-32b"), choose("sglang"), asked)  # kvplan.size asks a help again
    assert result.refusal is not None
    assert result.refusal.code == "no-memory-for-cache"
    smallest = result.refusal.help[-1]
    assert smallest.startswith("--mem-fraction-static 0.4")
    fraction = Fraction(smallest.split()[1])
    assert budget_of(sized(mem_fraction_static=fraction)).kv_pool_bytes > 0
    assert budget_of(sized(mem_fraction_static=fraction - Fraction(1, 1000))).kv_pool_bytes == 0


def test_images_lower_the_fraction_and_have_a_cache() -> None:
    """LLaVA: an encoder of 48 layers, and no prefill graphs (8 MiB for each of 58) to keep free."""
    wrapper = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": TINY,
        "vision_config": {"num_hidden_layers": 48, "hidden_size": 1024},
    }
    plain, seeing = sized(TINY, weights="1GiB"), sized(wrapper, weights="1GiB")
    assert lines(seeing)["image cache"] == 100 * MIB
    assert "image cache" not in lines(plain)
    # 24 layers more than the engine's usual encoder: 0.95 · (1 − 0.1)
    assert plain.settings["mem_fraction_static"] == 0.903
    assert seeing.settings["mem_fraction_static"] == pytest.approx(0.907 * 0.95 * 0.9, abs=1e-6)


def test_data_parallel_attention_of_a_class_that_is_not_described() -> None:
    asked: dict[str, Any] = {"gpu": "h200", "tp": 8, "dp": 8, "enable_dp_attention": True}
    unknown = sized("llama-4-scout", **asked)
    assert unknown.budget is None
    assert any("--weights 15GiB" in text for text in unknown.warnings)
    stated = lines(sized("deepseek-v3.2", weights="90GiB", **asked))
    assert stated["weights"] == 90 * GIB
    assert "absorbed projections" not in stated


def test_a_draft_with_unknown_weights() -> None:
    asked: dict[str, Any] = {"speculative_method": "eagle", "num_speculative_tokens": 3, "draft_layers": 1}
    assert "draft model" in lines(sized(**asked))
    assert "draft model" not in lines(sized(**asked, weights="63GiB"))


def test_several_ranks_have_more_buffers() -> None:
    assert lines(sized(tp=2))["context, buffers"] > lines(sized())["context, buffers"]
    assert lines(sized(tp=2))["weights"] < lines(sized())["weights"] * 0.51


def test_there_is_no_automatic_length() -> None:
    with pytest.raises(KvplanError, match="no --max-model-len auto"):
        sized(max_model_len="auto")


PRINTED = (
    # model, GPU, ranks, mem_fraction_static, cache, weights of a GPU as printed, GiB of the caches as printed
    ("deepseek-r1", "h200", 8, "0.82", "auto", "79.80GiB", 33.32),
    ("Qwen/Qwen3-235B-A22B-FP8", "h100", 4, "0.93", "auto", None, 16.46),
)


@pytest.mark.parametrize(("model", "gpu", "ranks", "share", "cache", "weights", "printed"), PRINTED)
def test_what_servers_printed(
    model: str, gpu: str, ranks: int, share: str, cache: str, weights: str | None, printed: float
) -> None:
    """Within two hundredths of the printed caches, and they lie in the interval; with stated weights it is
    open by 0.8 GiB to each side at most."""
    found = kvplan.size(
        model,
        engine="sglang",
        gpu=gpu,
        tp=ranks,
        settings={"mem_fraction_static": share},
        kv_cache_dtype=cache,
        weights=weights,
    )
    budget = found.budget
    assert budget is not None
    assert budget.kv_pool_low_bytes <= printed * GIB <= budget.kv_pool_high_bytes
    assert abs(budget.kv_pool_bytes - printed * GIB) < printed * GIB / 50
    if weights:
        assert budget.kv_pool_high_bytes - budget.kv_pool_low_bytes <= 2 * 0.8 * GIB


@pytest.mark.parametrize(
    ("gpu", "ranks", "free"),
    [
        ("139.80", 8, "137.97"),  # H200, NCCL 2.28
        ("94.97", 4, "94.01"),  # RTX PRO 6000
        ("47.43", 1, "46.81"),  # RTX A6000
        ("23.58", 2, "22.93"),  # RTX 3090
        ("277.04", 2, "274.72"),  # GB300
        ("277.04", 4, "274.36"),
    ],
)
def test_what_is_free_before_the_weights(gpu: str, ranks: int, free: str) -> None:
    """The context and NCCL's buffers are those of the interconnect, not of the number of ranks alone."""
    names = {
        "139.80": "h200",
        "94.97": "rtx-pro-6000",
        "47.43": "rtx-a6000",
        "23.58": "rtx-3090",
        "277.04": "gb300",
    }
    line = context_of(load_gpu(names[gpu]), ranks)
    taken = (float(gpu) - float(free)) * GIB
    assert line.low_bytes <= taken <= line.high_bytes


def test_less_free_memory_is_less_slack() -> None:
    """The ends of the pool: a GiB more of context takes mem_fraction_static of a GiB from the pool."""
    budget = kvplan.size(
        "qwen3-8b", engine="sglang", gpu="h100", settings={"mem_fraction_static": "0.5"}, weights="16GiB"
    ).budget
    assert budget is not None
    context = next(line for line in budget.lines if line.name == "context, buffers")
    width = budget.kv_pool_high_bytes - budget.kv_pool_low_bytes
    assert abs(width - (context.high_bytes - context.low_bytes) // 2) <= 1


def test_the_old_word_of_a_four_bit_cache() -> None:
    asked: dict[str, Any] = {"engine": "sglang", "gpu": "b200", "attention_backend": "triton", "tokens": 1000}
    old, new = (
        kvplan.size("qwen3-8b", kv_cache_dtype=word, **asked) for word in ("fp4_e2m1", "fp4_mx_block16")
    )
    assert old.total == new.total
