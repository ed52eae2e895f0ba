"""Data-parallel attention: the bytes of one GPU, counted by hand, for three engines."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.sglang.classes import rows
from kvplan.engines.sglang.start.models import SERVED
from kvplan.errors import KvplanError
from kvplan.results import Budget, SizeResult
from kvplan.units import GIB

BF16, FP32 = 2, 4


def sized(model: str, engine: str = "sglang", **options: Any) -> SizeResult:
    return kvplan.size(model, **{"engine": engine, "gpu": "h200", "tp": 8, **options})


def budget_of(result: SizeResult) -> Budget:
    assert result.budget is not None, result.warnings
    return result.budget


def line(result: SizeResult, name: str) -> int:
    return {entry.name: entry.bytes for entry in budget_of(result).lines}.get(name, 0)


def weights(result: SizeResult) -> int:
    return line(result, "weights")


def fp8(rows: int, columns: int) -> int:
    """A matrix in FP8 with a float32 scale for each 128 × 128."""
    return rows * columns + -(-rows // 128) * -(-columns // 128) * FP32


def deepseek(
    *, attention: int = 1, dense: int = 8, shared: int = 8, experts: tuple[int, int] = (256, 8),
    embedding: int = 1, head: int = 8,
) -> int:  # fmt: skip
    """DeepSeek-V3 on one GPU: how many ways each part is divided; experts: (how many, ways of the width)."""
    hidden, heads = 7168, 128 // attention
    mla = fp8(1536, hidden) + fp8(heads * 192, 1536) + fp8(576, hidden) + fp8(heads * 256, 512)
    mla += fp8(hidden, heads * 128) + (1536 + 512) * BF16
    around = 2 * hidden * BF16

    def perceptron(width: int) -> int:
        return 2 * fp8(width, hidden) + fp8(hidden, width)

    count, ways = experts
    moe = 256 * hidden * BF16 + 256 * FP32 + perceptron(2048 // shared) + count * perceptron(2048 // ways)
    table = 129_280 * hidden * BF16
    return (
        61 * (mla + around) + 3 * perceptron(18_432 // dense) + 58 * moe
        + table // embedding + table // head + hidden * BF16
    )  # fmt: skip


DP: dict[str, Any] = {"dp": 8, "enable_dp_attention": True}
DEEPEP: dict[str, Any] = {**DP, "moe_a2a_backend": "deepep"}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, {"attention": 8, "embedding": 8}),
        (DP, {}),
        ({**DP, "dp": 2}, {"attention": 4, "embedding": 4}),
        ({**DP, "ep_size": 8}, {"experts": (32, 1)}),
        ({**DP, "ep_size": 2}, {"experts": (128, 4)}),
        ({**DP, "moe_dense_tp_size": 1}, {"dense": 1}),
        ({**DP, "moe_dense_tp_size": 8}, {}),
        ({**DP, "enable_dp_lm_head": True}, {"head": 1}),
        ({**DP, "dp": 4, "enable_dp_lm_head": True}, {"attention": 2, "embedding": 2, "head": 2}),
        (DEEPEP, {"experts": (32, 1), "shared": 1}),
        ({**DEEPEP, "ep_num_redundant_experts": 32}, {"experts": (36, 1), "shared": 1}),
        # Without groups a head of its own is not heard: SGLang resets the flag.
        ({"enable_dp_lm_head": True}, {"attention": 8, "embedding": 8}),
    ],
)
def test_deepseek_v3_under_sglang(options: dict[str, Any], parts: dict[str, Any]) -> None:
    assert weights(sized("deepseek-v3", **options)) == deepseek(**parts)


def test_deepseek_v3_under_tensorrt_llm() -> None:
    whole: dict[str, Any] = {"dense": 1, "shared": 1, "head": 1}
    asked = sized("deepseek-v3", "trtllm", enable_attention_dp=True)
    assert weights(asked) == deepseek(**whole)
    asked = sized("deepseek-v3", "trtllm", enable_attention_dp=True, moe_expert_parallel_size=8)
    assert weights(asked) == deepseek(**whole, experts=(32, 1))


@pytest.mark.parametrize(
    ("tp", "dp", "parts"),
    [
        (1, 8, {"dense": 1, "shared": 1, "head": 1}),
        (8, 1, {"attention": 8, "embedding": 8}),
        # Both: tokens are divided among the ranks that share experts, and the shared ones stay whole.
        (2, 4, {"attention": 2, "embedding": 2, "head": 2, "dense": 2, "shared": 1}),
    ],
)
def test_deepseek_v3_under_vllm(tp: int, dp: int, parts: dict[str, Any]) -> None:
    """Attention on every data-parallel rank, experts over tp × dp (fused_moe/config.py, 0.32)."""
    asked = sized("deepseek-v3", "vllm", tp=tp, dp=dp, enable_expert_parallel=True)
    assert weights(asked) == deepseek(**parts, experts=(32, 1))


def qwen(*, attention: int, embedding: int, head: int = 8) -> int:
    """Qwen3-235B-A22B in 16 bit, its experts' width over 8 GPUs."""
    hidden = 4096
    projections = (2 * (64 // attention) + 2 * max(1, 4 // attention)) * 128 * hidden
    layer = projections + 2 * 128 + 2 * hidden + 128 * hidden + 128 * 3 * hidden * 1536 // 8
    table = 151_936 * hidden
    return BF16 * (94 * layer + table // embedding + table // head + hidden)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, {"attention": 8, "embedding": 8}),
        (DP, {"attention": 1, "embedding": 1}),
        ({**DP, "dp": 2}, {"attention": 4, "embedding": 4}),
        ({**DP, "dp": 4, "enable_dp_lm_head": True}, {"attention": 2, "embedding": 2, "head": 2}),
    ],
)
def test_qwen3_235b_under_sglang(options: dict[str, Any], parts: dict[str, int]) -> None:
    assert weights(sized("qwen3-235b-a22b", **options)) == qwen(**parts)


def test_qwen3_235b_under_tensorrt_llm() -> None:
    asked = sized("qwen3-235b-a22b", "trtllm", enable_attention_dp=True)
    assert weights(asked) == qwen(attention=1, embedding=1, head=1)


def test_a_published_start() -> None:
    """105.59 GiB for DeepSeek-R1 on 8 GPUs (sgl-project/sglang #6017, 2025-05-09): DP 8, DeepEP, 32 redundant
    experts, dense layers whole, as the thread's instructions have it; the head's flag is not printed."""
    asked: dict[str, Any] = {**DEEPEP, "ep_num_redundant_experts": 32, "moe_dense_tp_size": 1}
    for head in (False, True):
        result = sized("deepseek-v3", **asked, enable_dp_lm_head=head)
        loaded = weights(result) + line(result, "absorbed projections")
        assert abs(loaded - 105.59 * GIB) < 0.02 * 105.59 * GIB


def test_the_absorbed_projections_lie_where_attention_does() -> None:
    numbers = 61 * 128 * 256 * 512
    assert line(sized("deepseek-v3"), "absorbed projections") == numbers * BF16 // 8
    assert line(sized("deepseek-v3", **DP), "absorbed projections") == numbers * BF16
    assert line(sized("qwen3-235b-a22b", **DP), "absorbed projections") == 0


def test_draft_layers_are_divided_as_the_model_is() -> None:
    plain = line(
        sized("deepseek-v3", speculative_method="mtp", num_speculative_tokens=1), "draft layers (MTP)"
    )
    apart = line(
        sized("deepseek-v3", **DP, speculative_method="mtp", num_speculative_tokens=1), "draft layers (MTP)"
    )
    assert apart - plain > (deepseek() - deepseek(attention=8)) // 61 - 1024


def test_a_class_without_head_groups() -> None:
    """MiniMax-M2's head is always divided among all ranks."""
    plain, own = (sized("minimax-m2", **DP, ep_size=8, enable_dp_lm_head=flag) for flag in (False, True))
    assert weights(plain) == weights(own)


@pytest.mark.parametrize(
    ("model", "options", "word"),
    [
        ("llama-3.3-70b", {}, "LlamaForCausalLM"),
        ("glm-4.5v", {}, "Glm4vMoeForConditionalGeneration"),
        (
            "llama-3.3-70b",
            {"dp": 1, "enable_dp_attention": False, "moe_a2a_backend": "deepep"},
            "LlamaForCausalLM",
        ),
    ],
)
def test_classes_that_are_not_described_are_refused(model: str, options: dict[str, Any], word: str) -> None:
    asked: dict[str, Any] = {**DP, **options}
    result = sized(model, **asked)
    assert result.budget is None
    assert any(word in text and "--weights" in text for text in result.warnings)
    assert sized(model, **asked, weights="40GiB").budget is not None


def test_every_class_that_is_described_is_served() -> None:
    assert {name for name, row in rows().items() if "groups" in row} <= SERVED


def test_tensorrt_llm_refuses_what_is_not_described() -> None:
    result = sized("llama-3.3-70b", "trtllm", enable_attention_dp=True)
    assert result.budget is None
    assert any("LlamaForCausalLM" in text for text in result.warnings)


@pytest.mark.parametrize(
    "options", [{"ep_size": 3}, {"moe_dense_tp_size": 2}, {"moe_a2a_backend": "smoke"}, {"ep_size": 0}]
)
def test_settings_that_the_engine_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        sized("deepseek-v3", **options)
    assert caught.value.code == "bad-setting"
    with pytest.raises(KvplanError):
        sized("deepseek-v3", "trtllm", moe_expert_parallel_size=3)


def test_adapters_and_draft_models_beside_it_are_refused() -> None:
    result = sized("qwen3-32b", **DP, enable_lora=True, max_lora_rank=16, lora_target_modules="q_proj")
    assert result.budget is None
    assert any("adapters" in text for text in result.warnings)
    draft: dict[str, Any] = {"speculative_method": "draft_model", "num_speculative_tokens": 3}
    result = sized("qwen3-32b", **DP, **draft, speculative_model="qwen3-0.6b")
    assert result.budget is None
    assert result.refusal is not None
    assert "draft_model" in result.refusal.message


def test_both_spellings_of_attention_groups() -> None:
    assert weights(sized("deepseek-v3", attn_dp_size=4)) == deepseek(attention=2, embedding=2)
    again = sized("deepseek-v3", attn_dp_size=4)
    older = sized("deepseek-v3", dp=4, enable_dp_attention=True)
    assert budget_of(again) == budget_of(older)
    assert again.pool == older.pool
    refused: tuple[dict[str, Any], ...] = ({"attn_dp_size": 3}, {"attn_dp_size": 4, "dp": 2})
    for wrong in refused:
        with pytest.raises(KvplanError) as caught:
            sized("deepseek-v3", **wrong)
        assert caught.value.code == "bad-setting"


def test_requests_are_those_of_one_attention_rank() -> None:
    result = sized("deepseek-v3", **DP, max_num_seqs=256, tokens=8192)
    assert result.pool is not None
    assert result.pool.max_num_seqs == 256 // 8
    assert result.settings["attn_dp_size"] == 8
    assert result.settings["chunked_prefill_size"] == 8192 // 8
    assert result.settings["max_running_requests"] == 32
