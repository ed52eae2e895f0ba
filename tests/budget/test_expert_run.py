"""The buffers of routed experts: laws over releases, GPUs, ranks and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.expert_workspaces import expert_bytes, expert_run
from kvplan.engines.vllm.memory.profile_peak import served_shape
from kvplan.errors import KvplanError
from kvplan.units import GIB

RELEASES = ((0, 8), (0, 10), (0, 11), (0, 12), (0, 17), (0, 18), (0, 20), (0, 33))
FORMATS = (None, "fp8", "mxfp4", "nvfp4", "modelopt", "awq")
CAPABILITIES = ((8, 0), (9, 0), (10, 0), (12, 0))
SHAPES = st.builds(
    Shape,
    hidden_size=st.integers(64, 16_384),
    vocab_size=st.just(1000),
    mlp_width=st.just(0),
    expert_width=st.integers(16, 16_384),
    experts_per_token=st.integers(1, 32),
)
TOKENS = st.integers(1, 131_072)
RANKS = st.sampled_from((1, 2, 4, 8, 16))
ASKED: dict[str, Any] = {
    "release": st.sampled_from(RELEASES),
    "stored": st.sampled_from(FORMATS),
    "capability": st.sampled_from(CAPABILITIES),
}


def taken(
    shape: Shape, tokens: int, dp: int, *, release: Any, stored: Any, capability: Any, ways: int = 1
) -> int:
    """Whole experts on each rank (expert parallelism) unless ``ways`` divide them."""
    run = expert_run(stored, release, capability, dp=dp, expert_parallel=ways == 1)
    return expert_bytes(shape, run, tokens=tokens, ways=ways, dp=dp)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_more_ranks_bring_their_tokens(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    """Whole experts see every rank's tokens: never less than twice as few ranks."""
    assert taken(shape, tokens, 2 * dp, **asked) >= taken(shape, tokens, dp, **asked)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_all_ranks_tokens_are_exchanged_in_two_copies_at_least(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    found = taken(shape, tokens, dp, **asked)
    assert found >= (2 * tokens * dp * shape.hidden_size * shape.element_bytes if dp > 1 else 0)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_more_tokens_never_take_less(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    assert taken(shape, tokens + 1, dp, **asked) >= taken(shape, tokens, dp, **asked)


@given(SHAPES, st.integers(1, 8192), RANKS, st.fixed_dictionaries(ASKED))
def test_without_chunks_a_rank_has_the_whole_product_of_every_tokens_experts(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    """Since 0.18: rows of all ranks · experts of a token · both products, the first in 8 bits at least."""
    asked["release"] = max(asked["release"], (0, 18))
    least = shape.expert_width + shape.hidden_size * shape.element_bytes
    assert taken(shape, tokens, dp, **asked) >= tokens * dp * shape.experts_per_token * least


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_dividing_an_experts_width_never_takes_more(
    shape: Shape, tokens: int, dp: int, asked: dict[str, Any]
) -> None:
    assert taken(shape, tokens, dp, ways=8, **asked) <= taken(shape, tokens, dp, **asked)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_a_dense_model_has_none(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    assert taken(replace(shape, experts_per_token=0), tokens, dp, **asked) == 0


@given(SHAPES, TOKENS, st.sampled_from(RELEASES))
def test_cutlass_has_three_copies_of_the_rows_of_nvfp4(
    shape: Shape, tokens: int, release: tuple[int, ...]
) -> None:
    """run_cutlass_moe_fp4: gathered input, gathered and weighted product, beside both workspaces."""

    def more(**asked: Any) -> int:
        run = expert_run("nvfp4", release, (12, 0), dp=1, expert_parallel=False, **asked)
        return expert_bytes(shape, run, tokens=tokens, ways=1, dp=1)

    rows = min(tokens, 16_384) if release < (0, 18) else tokens  # at most a chunk of rows
    copies = 3 * rows * shape.experts_per_token * shape.hidden_size * shape.element_bytes
    assert more(backend="cutlass", nvfp4=True) > copies
    assert more(backend="cutlass") == more(backend="flashinfer_cutlass") == more()


def test_cutlass_for_nvfp4_leaves_a_smaller_pool() -> None:
    """An RTX 5090 of a public text: 21.86 GiB of weights, 16,384 tokens a step; the log printed 1.28 GiB."""

    def start(backend: str) -> tuple[float, float]:
        found = kvplan.size(
            "Qwen/Qwen3.6-35B-A3B", engine="vllm@0.20.0", gpu="rtx-5090-32gb", weights="21.86GiB",
            max_model_len=65_536, max_num_seqs=1, max_num_batched_tokens=16_384, kv_cache_dtype="fp8_e4m3",
            gpu_memory_utilization=0.9, settings={"max_cudagraph_capture_size": 1, "moe_backend": backend},
        ).budget  # fmt: skip
        assert found is not None
        return found.kv_pool_low_bytes / GIB, found.kv_pool_bytes / GIB

    safe, likely = start("cutlass")
    assert safe < 1.28
    assert start("auto")[1] - likely == pytest.approx(1.25, abs=0.01)


def test_a_backend_that_vllm_has_not_is_named() -> None:
    with pytest.raises(KvplanError, match="moe_backend"):
        kvplan.size("Qwen/Qwen3-8B", engine="vllm", gpu="h100", settings={"moe_backend": "cutlas"})


@given(SHAPES, TOKENS, RANKS, st.integers(16, 16_384), st.fixed_dictionaries(ASKED))
def test_experts_on_a_latent_take_what_a_model_of_that_width_takes(
    shape: Shape, tokens: int, dp: int, latent: int, asked: dict[str, Any]
) -> None:
    narrow = taken(replace(shape, expert_hidden=latent), tokens, dp, **asked)
    assert narrow == taken(replace(shape, hidden_size=latent), tokens, dp, **asked)


@given(SHAPES, TOKENS, RANKS, st.fixed_dictionaries(ASKED))
def test_no_gate_never_takes_more(shape: Shape, tokens: int, dp: int, asked: dict[str, Any]) -> None:
    assert taken(replace(shape, ungated=True), tokens, dp, **asked) <= taken(shape, tokens, dp, **asked)


@pytest.mark.parametrize(
    ("name", "width", "ungated"),
    [
        ("nemotron-3-ultra-550b-a55b", 2048, True),
        ("nemotron-3-super-120b-a12b", 1024, True),
        ("nemotron-3-nano-30b-a3b", 2688, True),
        ("kimi-k3", 3584, False),
        ("gpt-oss-20b", 2880, False),
        ("llama-3.1-8b", 0, False),
    ],
)
def test_what_experts_work_on_is_read_off_the_tensors(name: str, width: int, ungated: bool) -> None:
    shape = served_shape(kvplan.load_model(name), 2)
    assert (shape.expert_hidden, shape.ungated) == (width, ungated)


def test_a_verified_batch_of_32k_tokens_starts() -> None:
    """vllm-project/recipes: Nemotron-3-Ultra in BF16 on eight B200, refused while its experts were as wide as
    its hidden states."""
    asked: dict[str, Any] = {"max_num_batched_tokens": 32_768, "max_num_seqs": 16, "max_model_len": 262_144}
    result = kvplan.size(
        "nemotron-3-ultra-550b-a55b",
        engine="vllm@0.33",
        gpu="b200",
        tensor_parallel_size=8,
        kv_cache_dtype="fp8",
        gpu_memory_utilization=0.9,
        speculative_config="mtp:5",
        settings={"mamba_ssm_cache_dtype": "float32"},
        **asked,
    )
    assert result.refusal is None
    assert result.budget is not None
    assert result.budget.kv_pool_low_bytes > 0


def test_eight_ranks_of_data_and_experts_as_a_server_printed_them() -> None:
    """Kimi-K2.6 in integers of four bits on eight H200 NVL, a share of 0.6: "Model loading took 88.44 GiB",
    "Available KV cache memory: -19.08 GiB" (public text 57130254876; a release of 0.20)."""
    budget = kvplan.size(
        "kimi-k2.5", engine="vllm@0.20", gpu="h200-nvl", data_parallel_size=8, enable_expert_parallel=True,
        max_num_seqs=1, max_model_len=131_072, gpu_memory_utilization="0.6", weights="88.44GiB",
    ).budget  # fmt: skip
    assert budget is not None
    left = budget.total_bytes * 6 // 10 - sum(line.bytes for line in budget.lines)
    assert left / GIB == pytest.approx(-19.08, abs=0.4)


@pytest.mark.parametrize(
    ("stored", "integers", "last"),
    [
        ("awq", False, 21),
        ("gptq", False, 19),
        ("compressed-tensors", True, 22),
        ("compressed-tensors", False, 0),
    ],
)
def test_marlin_called_by_itself_has_a_narrower_second_product(
    stored: str, integers: bool, last: int
) -> None:
    for minor in range(8, 34):
        run = expert_run(
            stored, (0, minor), (9, 0), dp=1, expert_parallel=False, integers=integers, backend="marlin"
        )
        assert run.direct == (minor <= last)
