"""Latent attention: kv_b_proj a second time, and what the batch's indexer chooses."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory.allocator_rounding import chosen_tokens
from kvplan.units import GIB

HEADS, RANK, NOPE, VALUE, LAYERS = 128, 512, 128, 128, 61
"""DeepSeek-V3's."""
WHOLE = LAYERS * RANK * HEADS * (NOPE + VALUE)


def lines(model: str, engine: str, **options: Any) -> dict[str, int]:
    result = kvplan.size(model, engine=engine, **{"gpu": "h200-sxm", **options})
    assert result.budget is not None
    return {line.name: line.bytes for line in result.budget.lines}


def beside(model: str, engine: str = "vllm@0.33", **options: Any) -> int:
    return lines(model, engine, **options).get("beside the weights", 0)


@pytest.mark.parametrize(("ranks", "release"), [(8, "0.11"), (16, "0.20"), (8, "0.33")])
def test_a_quantised_projection_is_kept_in_sixteen_bit_too(ranks: int, release: str) -> None:
    found = beside("deepseek-r1", f"vllm@{release}", tensor_parallel_size=ranks)
    assert WHOLE * 2 // ranks <= found < WHOLE * 2 // ranks + 0.08 * GIB


def test_ranks_that_divide_requests_have_every_head() -> None:
    divided: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "data_parallel_size": 8,
        "enable_expert_parallel": True,
    }
    assert beside("deepseek-r1", **divided) >= WHOLE * 2


def test_stages_have_their_own_layers() -> None:
    two = beside("deepseek-r1", tensor_parallel_size=8, pipeline_parallel_size=2)
    assert 0.48 < two / beside("deepseek-r1", tensor_parallel_size=8) < 0.55


@pytest.mark.parametrize("model", ["deepseek-v2-lite", "kimi-k2.5", "glm-5.3-bf16", "llama-3.1-8b"])
def test_one_that_is_not_quantised_is_a_view_and_other_attention_has_none(model: str) -> None:
    found = beside(model, tensor_parallel_size=8)
    chosen = 8192 * 2048 * 4 if model == "glm-5.3-bf16" else 0
    assert found - chosen < 0.1 * GIB


PRINTED = [
    ("deepseek-ai/DeepSeek-R1", "0.11", 8192, 79.739, 0.19),
    ("deepseek-ai/DeepSeek-V3.2", "0.16", 16_384, 80.58, 0.03),
    ("deepseek-ai/DeepSeek-V3.2", "0.16", 32_768, 80.78, 0.1),
]
"""``Model loading took`` on eight H200, GiB (public texts 54698501030 and 68378441594)."""


@pytest.mark.parametrize(("model", "release", "tokens", "printed", "within"), PRINTED)
def test_what_servers_printed(model: str, release: str, tokens: int, printed: float, within: float) -> None:
    sizes = {"max_model_len": 16_384, "max_num_batched_tokens": tokens}
    found = lines(model, f"vllm@{release}", tensor_parallel_size=8, **sizes)
    loaded = sum(found[name] for name in ("weights", "beside the weights", "rotary tables"))
    assert loaded / GIB == pytest.approx(printed, abs=within)
    assert loaded / GIB < printed


def test_the_tokens_that_an_indexer_chooses_grow_with_the_batch() -> None:
    small, large = (
        beside("deepseek-v3.2", tensor_parallel_size=8, max_num_batched_tokens=tokens)
        for tokens in (4096, 16_384)
    )
    assert large - small == (16_384 - 4096) * 2048 * 4


@pytest.mark.parametrize(("gpu", "each"), [("h200-sxm", 1), ("b200-sxm", 3)])
def test_tensorrt_llm_keeps_blocks_of_fp8_and_on_blackwell_both(gpu: str, each: int) -> None:
    found = lines("deepseek-r1", "trtllm", gpu=gpu, tensor_parallel_size=8)
    assert found["absorbed projections"] == WHOLE * each // 8


def test_tensorrt_llm_copies_what_is_not_quantised() -> None:
    found = lines("kimi-k2-thinking", "trtllm", tensor_parallel_size=8)
    assert found["absorbed projections"] == LAYERS * RANK * 64 // 8 * (NOPE + VALUE) * 2
    assert "absorbed projections" not in lines("llama-3.1-8b", "trtllm")


def test_stated_weights_have_it() -> None:
    assert "absorbed projections" not in lines(
        "deepseek-r1", "trtllm", tensor_parallel_size=8, weights="80GiB"
    )
    assert beside("deepseek-r1", tensor_parallel_size=8, weights="80GiB") == 0


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("deepseek-v3.2", 2048),
        ("glm-5.2", 2048),
        ("glm-5.3-flash", 2176),
        ("qwen3.8-flash-next", 512 * 4 + 1),
        ("deepseek-v4-flash", 512),
        ("deepseek-v3", 0),
    ],
)
def test_a_prediction_layer_has_chosen_tokens_of_its_own(model: str, columns: int) -> None:
    """topk_indices_buffer: vllm/model_executor/models/deepseek_mtp.py, vllm/models/{glm5next,qwen4_exp}."""

    def grown(**drafts: Any) -> int:
        small, large = (
            beside(model, tensor_parallel_size=8, max_num_batched_tokens=tokens, **drafts)
            for tokens in (4096, 8192)
        )
        return large - small

    streams = 4 * 4096 * 2 if model == "deepseek-v4-flash" else 0
    more = grown(speculative_method="mtp", num_speculative_tokens=1) - grown()
    assert more == 4096 * (columns * 4 + streams)


def test_the_prediction_layer_of_dots3_is_given_no_buffer() -> None:
    """vllm/models/dots3_note/nvidia/mtp.py; its weights are not known, so it has no budget to look at."""
    model = kvplan.load_model("dots3-note")
    assert model.draft_layers
    assert chosen_tokens(model, 4096) == 4096 * 2048 * 4
    assert chosen_tokens(model, 4096, drafts=True) == 0
