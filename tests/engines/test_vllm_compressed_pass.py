"""DeepSeek-V4's pass in vLLM: heads as the kernel takes them, what its loop holds, what is made beside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model
from kvplan.engines.vllm.memory.compressed_pass import compressed_passes, made_beside, padded_heads
from kvplan.units import GIB, MIB

FLASH, PRO = "deepseek-ai/DeepSeek-V4-Flash-0731", "deepseek-ai/DeepSeek-V4-Pro"
MODELS = st.sampled_from([FLASH, "deepseek-ai/DeepSeek-V4-Flash", PRO])
RELEASES = st.tuples(st.just(0), st.integers(23, 33))
CAPABILITIES = st.sampled_from([(9, 0), (10, 0), (10, 3), (12, 0), (12, 1)])
RANKS = st.sampled_from([1, 2, 4, 8, 16, 32])
HOPPER = (9, 0)


def peak(model: str, tokens: int, ranks: int, capability: tuple[int, int], release: tuple[int, ...]) -> int:
    """The most of all places, bytes."""
    places = compressed_passes(
        load_model(model), ranks=ranks, capability=capability, release=release, element=2
    )
    return max(tokens * each + besides for each, besides in places)


def loaded(release: str, tokens: int) -> int:
    """``Model loading took``, bytes."""
    budget = kvplan.size(
        FLASH,
        engine=f"vllm@{release}",
        gpu="h100",
        tp=8,
        enable_expert_parallel=True,
        kv_cache_dtype="fp8",
        max_model_len=262144,
        max_num_batched_tokens=tokens,
    ).budget
    assert budget is not None
    return sum(
        line.bytes
        for line in budget.lines
        if line.name.startswith(("weights", "beside the weights", "rotary"))
    )


def test_a_server_of_eight_h100_printed_it() -> None:
    """A study of 0.31.1rc1 (tests/data/held_out.yaml, blog-dsv4flash-0731-8xh100): 19.79 GiB of weights; 0.9
    of 79.18 GiB less these and a pool of 47.43 leave 4.04 GiB, of which the workspaces take 0.75, the logits
    0.5, context and NCCL 0.72, graphs 0.19 and the sampler's states 0.03."""
    assert loaded("0.32", 8192) / GIB == pytest.approx(19.79, abs=0.02)
    rest = 0.9 * 79.18 - 19.79 - 47.43 - 0.75 - 0.5 - 0.72 - 0.19 - 0.03
    assert peak(FLASH, 8192, 8, HOPPER, (0, 32)) / GIB == pytest.approx(rest, abs=0.05)


@pytest.mark.parametrize(
    ("heads", "capability", "release", "padded"),
    [
        (8, HOPPER, (0, 32), 64),
        (64, (10, 0), (0, 32), 64),
        (65, HOPPER, (0, 25), 128),
        (8, (12, 0), (0, 25), 16),
        (8, (12, 0), (0, 27), 8),
        (32, (12, 1), (0, 33), 32),
        (256, HOPPER, (0, 33), 256),
    ],
)
def test_heads_of_the_kernel(
    heads: int, capability: tuple[int, int], release: tuple[int, int], padded: int
) -> None:
    assert padded_heads(heads, capability, release) == padded


@given(MODELS, st.integers(1, 65536), RANKS, CAPABILITIES, RELEASES)
def test_a_rank_has_the_result_and_both_streams(
    model: str, tokens: int, ranks: int, capability: tuple[int, int], release: tuple[int, int]
) -> None:
    """Never less than two sets of four streams and the result of the rank's own heads of 512; on Hopper of 64
    heads, however many ranks there are."""
    found = load_model(model)
    streams = 2 * 5 * found.hidden_size * 2
    own = found.num_attention_heads // ranks
    least = max(own, 64) if capability[0] < 12 else own
    assert peak(model, tokens, ranks, capability, release) >= tokens * (streams + least * 512 * 2)


@given(MODELS, st.integers(1, 65536), CAPABILITIES, RELEASES)
def test_more_ranks_never_take_more(
    model: str, tokens: int, capability: tuple[int, int], release: tuple[int, int]
) -> None:
    found = [peak(model, tokens, ranks, capability, release) for ranks in (1, 2, 4, 8, 16)]
    if release >= (0, 28):  # before, a rank whose heads are padded holds them twice
        assert found == sorted(found, reverse=True)
    assert peak(model, 2 * tokens, 2, capability, release) >= found[1]


@given(MODELS, RANKS, CAPABILITIES)
def test_the_indexer_beside_the_queries_since_0_28(
    model: str, ranks: int, capability: tuple[int, int]
) -> None:
    """The queries are alive where the indexer runs, as wide as the result; before, it or they."""
    found = load_model(model)
    (newer,), (indexed, queries) = (
        compressed_passes(found, ranks=ranks, capability=capability, release=release, element=2)
        for release in ((0, 28), (0, 27))
    )
    heads = padded_heads(found.num_attention_heads // ranks, capability, (0, 27))
    assert newer == (indexed[0] + heads * 512 * 2, indexed[1])
    assert queries[1] == indexed[1] - 512 * MIB


def test_others_have_no_place() -> None:
    """Compiled releases, other vendors' GPUs, other classes."""
    flash, qwen = load_model(FLASH), load_model("Qwen/Qwen3-8B")
    assert not compressed_passes(flash, ranks=8, capability=HOPPER, release=(0, 22, 1), element=2)
    assert not compressed_passes(flash, ranks=8, capability=None, release=(0, 32), element=2)
    assert not compressed_passes(qwen, ranks=8, capability=HOPPER, release=(0, 32), element=2)
    assert made_beside(qwen, 8192, drafts=True, release=(0, 32), element=2) == (0, 0)


@given(MODELS, st.integers(1, 65536), RELEASES, st.booleans())
def test_what_is_made_beside(model: str, tokens: int, release: tuple[int, int], drafts: bool) -> None:
    """Two tables of 1,048,576 × 64 in float32 where the config's one is counted in two bytes; a row of chosen
    entries a token, and one more for a draft; the streams for a draft, until 0.26 always."""
    found = load_model(model)
    every, last = made_beside(found, tokens, drafts=drafts, release=release, element=2)
    chosen = {FLASH: 512, PRO: 1024}.get(model, 512)
    assert every == (2 * 256 - 128) * MIB + tokens * chosen * 4
    streams = tokens * 4 * found.hidden_size * 2 if drafts or release < (0, 27) else 0
    assert last == streams + (tokens * chosen * 4 if drafts else 0)


def test_the_buffers_are_with_the_weights_on_the_screen() -> None:
    """512 chosen entries of four bytes a token, and the streams where a draft reads them."""
    grown = loaded("0.32", 8192) - loaded("0.32", 4096)
    assert grown == 4096 * 512 * 4
    assert loaded("0.26", 8192) - loaded("0.26", 4096) == grown + 4096 * 4 * 4096 * 2
