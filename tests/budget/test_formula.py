"""The formula of a rank's budget, checked by hand and by its laws."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.attention_buffers import SEGMENT, WORKSPACE, FlashInfer
from kvplan.engines.vllm.memory.cold_compile import compile_line
from kvplan.engines.vllm.memory.compressed_pass import reserved
from kvplan.engines.vllm.memory.cuda_graphs import PIECEWISE, captured, graph_line
from kvplan.engines.vllm.memory.profile_peak import activation_peak, draft_states
from kvplan.engines.vllm.memory.profile_run import Coefficients, Load, Reserved
from kvplan.engines.vllm.memory.rank_budget import (
    fusion_workspace,
    non_torch,
    non_torch_line,
    own_line,
    vllm_budget,
)
from kvplan.results import about, exact, left_over

KNOWN = Coefficients(
    calibrated=True,
    own_copies_milli=(("odd", 500),),
    logit_millibytes=15_000,
    logit_unfused_millibytes=15_000,
    hidden_copies_milli=4_000,
    traced_rest=7,
    draft_copies_milli=6_000,
    workspace_kept=True,
    multimodal_copies_milli=2_000,
    activation_margin=100,
    activation_margin_milli=10,
    compile_copies_milli=3_000,
    one_low=5,
    one_high=5,
    several_low=5,
    several_high=7,
    non_torch_by_ranks=((1, 10), (2, 200), (4, 300)),
    non_torch_pipeline=7,
    graph_ranks_milli=1_500,
    graph_margin=3,
    graph_margin_milli=500,
    graph_low_milli=500,
)
LOAD = Load(
    max_num_seqs=4,
    max_num_batched_tokens=10,
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    gpu_memory_utilization=Fraction(9, 10),
)
SMALL = Shape(hidden_size=8, vocab_size=100, mlp_width=16)
WEIGHTS = exact("weights", 1000, "stated")


def test_a_large_vocabulary_makes_the_sampler_the_peak() -> None:
    # 4 rows · 100 numbers · 15 B + 10 tokens · 8 · 2 B
    assert activation_peak(SMALL, LOAD, KNOWN) == 4 * 100 * 15 + 10 * 8 * 2


def test_a_small_vocabulary_leaves_the_forward_pass() -> None:
    # 10 tokens · 3 · 16 · 2 B + 4 copies of the hidden states
    shape = replace(SMALL, vocab_size=1)
    assert activation_peak(shape, LOAD, KNOWN) == 10 * 3 * 16 * 2 + 4 * 10 * 8 * 2


def test_only_the_last_stage_samples() -> None:
    assert activation_peak(SMALL, replace(LOAD, samples=False), KNOWN) == 10 * 3 * 16 * 2 + 4 * 10 * 8 * 2


def test_rows_are_bounded_by_the_tokens() -> None:
    few = replace(LOAD, max_num_seqs=1000)
    assert activation_peak(SMALL, few, KNOWN) == 10 * 100 * 15 + 10 * 8 * 2


def test_a_kept_workspace_is_beside_the_sampler_and_a_transient_one_is_not() -> None:
    shape = replace(SMALL, expert_width=6, experts_per_token=2)
    # tokens · experts · (max(2 · 6, 8) + max(6, 8)) · 2 B
    workspace = 10 * 2 * (12 + 8) * 2
    sampler = 4 * 100 * 15 + 10 * 8 * 2
    assert activation_peak(shape, LOAD, KNOWN) == sampler + workspace
    assert activation_peak(shape, LOAD, replace(KNOWN, workspace_kept=False)) == sampler


def test_expert_parallelism_keeps_an_experts_width() -> None:
    shape = replace(SMALL, expert_width=60, experts_per_token=1)
    split = replace(LOAD, tensor_parallel_size=2)
    whole = replace(split, enable_expert_parallel=True)
    assert activation_peak(shape, split, KNOWN) < activation_peak(shape, whole, KNOWN)


def test_encoder_outputs_are_alive_during_the_pass() -> None:
    seen = replace(SMALL, is_multimodal=True)
    assert activation_peak(seen, LOAD, KNOWN) - activation_peak(SMALL, LOAD, KNOWN) == 2 * 10 * 8 * 2


def test_a_draft_that_reads_hidden_states_keeps_copies_of_them() -> None:
    """Three beside the model's own pass, all of them while it is compiled, none beside the sampler."""
    drafted = replace(LOAD, drafts=3, reads_hidden=True)
    hidden = 10 * 8 * 2
    few, known = replace(SMALL, vocab_size=1), replace(KNOWN, compile_copies_milli=0)
    assert activation_peak(few, drafted, KNOWN) - activation_peak(few, LOAD, KNOWN) == 3 * hidden
    assert activation_peak(SMALL, drafted, KNOWN) == activation_peak(SMALL, LOAD, KNOWN)
    assert draft_states(few, drafted, known) == 6 * hidden


def test_non_torch_memory_follows_the_ranks() -> None:
    amounts = [non_torch(SMALL, replace(LOAD, tensor_parallel_size=ways), KNOWN) for ways in (1, 2, 3, 4, 8)]
    assert amounts == [10, 200, 200, 300, 300]
    assert non_torch(SMALL, replace(LOAD, pipeline_parallel_size=2), KNOWN) == 10
    assert non_torch(SMALL, replace(LOAD, data_parallel_size=8), KNOWN) == 300
    measured = non_torch_line(SMALL, replace(LOAD, pipeline_parallel_size=2), KNOWN, "")
    assert (measured.low_bytes, measured.bytes, measured.high_bytes) == (2, 10, 207)


def test_the_fused_all_reduce_has_four_buffers_for_every_rank() -> None:
    fused = replace(KNOWN, fusion=True)
    board = replace(LOAD, tensor_parallel_size=2, capability=(9, 0))
    # 4 · 2 ranks · 10 tokens · 8 · 2 B, below the 64 MiB of two Hopper ranks
    assert fusion_workspace(SMALL, board, fused) == 4 * 2 * 10 * 8 * 2
    wide = replace(board, max_num_batched_tokens=10**9)
    assert fusion_workspace(SMALL, wide, fused) == 4 * 2 * 64 * 2**20
    assert fusion_workspace(SMALL, replace(wide, tensor_parallel_size=8), fused) == 4 * 8 * 512 * 1024
    for without in (
        replace(board, capability=(8, 0)),
        replace(board, capability=(12, 0)),
        replace(board, tensor_parallel_size=1),
        replace(board, enforce_eager=True),
        replace(board, pipeline_parallel_size=2),
    ):
        assert fusion_workspace(SMALL, without, fused) == 0
    assert fusion_workspace(
        SMALL, replace(board, pipeline_parallel_size=2), replace(fused, fusion_stages=True)
    )


def test_a_cold_cache_takes_the_embedding_beyond_the_warm_peak() -> None:
    shape = replace(SMALL, vocab_size=1_000)
    load = replace(LOAD, max_num_seqs=1, max_num_batched_tokens=10)
    known = replace(KNOWN, logit_millibytes=0)
    # 1,000 · 8 · 2 B of the table, 3 hidden states of 160 B, less the warm pass: 10 · 3 · 16 · 2 + 4 · 160
    extra = 16_000 + 480 - (960 + 640)
    unknown = compile_line(shape, load, known)
    assert unknown is not None
    assert (unknown.low_bytes, unknown.bytes, unknown.high_bytes) == (0, extra, extra)
    assert "--compile-cache warm" in unknown.source
    cold = compile_line(shape, replace(load, compile_cache="cold"), known)
    assert cold is not None
    assert (cold.low_bytes, cold.bytes) == (extra, extra)
    halved = compile_line(shape, replace(load, tensor_parallel_size=2), known)
    assert halved is not None
    assert (halved.bytes, halved.high_bytes) == (0, 8_000 + 480 - (480 + 640))
    assert compile_line(shape, replace(load, compile_cache="warm"), known) is None
    assert compile_line(shape, replace(load, enforce_eager=True), known) is None
    assert compile_line(shape, load, replace(known, compile_copies_milli=-1)) is None
    assert compile_line(replace(shape, vocab_size=10), load, known) is None


def test_the_copy_of_the_table_may_be_kept() -> None:
    """Counted twice at most: in the peak, and in what cannot be given back."""
    shape, known = replace(SMALL, vocab_size=1_000), replace(KNOWN, logit_millibytes=0)
    kept, table = replace(known, compile_kept=True), 1_000 * SMALL.hidden_size * SMALL.element_bytes
    for state in ("unknown", "cold"):
        load = replace(LOAD, compile_cache=state)
        once, twice = compile_line(shape, load, known), compile_line(shape, load, kept)
        assert once is not None
        assert twice is not None
        assert (twice.low_bytes, twice.bytes) == (once.low_bytes, once.bytes + table)
        assert twice.high_bytes == once.high_bytes + table
    assert compile_line(replace(shape, vocab_size=10), replace(LOAD, tensor_parallel_size=2), kept) is None
    embeds = replace(LOAD, takes_tokens=False)
    assert compile_line(shape, embeds, kept) == compile_line(shape, embeds, known)


def test_a_part_that_takes_embeddings_copies_no_table() -> None:
    """The warm pass is the larger: nothing is likely, whatever the vocabulary is."""
    load, known = replace(LOAD, takes_tokens=False), replace(KNOWN, compile_embeds=100, compile_states=1000)
    for vocabulary in (10, 1_000_000):
        shape = replace(SMALL, vocab_size=vocabulary)
        line = compile_line(shape, replace(load, max_num_seqs=1), replace(known, logit_millibytes=0))
        assert line is not None
        assert (line.low_bytes, line.bytes, line.high_bytes) == (0, 0, 100)
    assert compile_line(SMALL, load, KNOWN) is None
    copied = compile_line(SMALL, load, replace(known, compile_copies_milli=10**6))
    assert copied is not None
    hidden = load.max_num_batched_tokens * SMALL.hidden_size * SMALL.element_bytes
    assert copied.bytes == 1000 * hidden - activation_peak(SMALL, load, known)
    assert copied.high_bytes - copied.bytes == 100


def test_linear_attention_tunes_its_kernels_while_it_is_profiled() -> None:
    load = replace(LOAD, takes_tokens=False, has_states=True)
    known = replace(KNOWN, compile_states=1000, compile_states_likely=200)
    line = compile_line(SMALL, load, known)
    assert line is not None
    assert (line.low_bytes, line.bytes, line.high_bytes) == (0, 200, 1000)
    told = replace(load, takes_tokens=True)
    assert compile_line(SMALL, told, known) == compile_line(SMALL, replace(told, has_states=False), known)


def test_the_tables_of_every_layer_are_benchmarked_too() -> None:
    """Gemma 3n and 4 E: one more row of every layer for each token of the vocabulary."""
    shape, known = replace(SMALL, vocab_size=1_000), replace(KNOWN, logit_millibytes=0)
    plain = compile_line(shape, LOAD, known)
    wide = compile_line(replace(shape, layer_embedding=30), LOAD, known)
    assert plain is not None
    assert wide is not None
    assert wide.bytes - plain.bytes == 1_000 * 30 * shape.element_bytes


def test_flashinfer_counts_with_the_graphs() -> None:
    """Its workspaces and the segments of its wrappers, exact beside the estimate."""
    known = replace(KNOWN, graph_layer_bytes=10)
    load = replace(LOAD, max_num_seqs=4, max_num_batched_tokens=64)
    plain = graph_line(SMALL, load, known, "")
    own = graph_line(SMALL, replace(load, flashinfer=FlashInfer(groups=2, wrappers=2)), known, "")
    assert plain is not None
    assert own is not None
    full = captured(4, 64, 0).full
    assert own.bytes - plain.bytes == 2 * WORKSPACE + full * SEGMENT
    assert own.high_bytes - own.bytes == plain.high_bytes - plain.bytes
    assert "FlashInfer" in own.source


def test_a_draft_at_once_makes_flashinfers_buffers_without_full_graphs() -> None:
    """Its own graphs run with metadata: Qwen3-4B with DFlash on an L4 estimated 0.79 GiB."""
    known = replace(KNOWN, graph_layer_bytes=10)
    infer = FlashInfer(groups=1, wrappers=1, uniform=False)
    load = replace(LOAD, max_num_seqs=4, max_num_batched_tokens=64, drafts=5, flashinfer=infer)
    assert captured(4, 64, 5, uniform=False).full == 0
    plain, made = (
        graph_line(SMALL, replace(load, drafts_at_once=at_once), known, "") for at_once in (False, True)
    )
    assert plain is not None
    assert made is not None
    assert made.bytes - plain.bytes == WORKSPACE + SEGMENT


def test_a_draft_at_once_has_its_logits_in_the_profile_run() -> None:
    """V2 proposes while it profiles: every request's drafts, beside the states that the draft has read."""
    shape = replace(SMALL, vocab_size=100_000)
    load = replace(LOAD, max_num_seqs=4, max_num_batched_tokens=64, drafts=7, reads_hidden=True)
    load, known = replace(load, states_read=5), replace(KNOWN, logit_millibytes=2000)
    states = 6 * 64 * shape.hidden_size * shape.element_bytes
    at_once = replace(load, drafts_at_once=True, draft_rows=7)
    assert activation_peak(shape, at_once, known) == 4 * 7 * 100_000 * shape.element_bytes + states
    assert activation_peak(shape, load, known) < 4 * 2 * 100_000 * shape.element_bytes
    unsampled = replace(at_once, samples=False)
    assert activation_peak(shape, unsampled, known) == activation_peak(
        shape, replace(load, samples=False), known
    )


def test_graphs_of_a_draft_at_once_are_its_logits() -> None:
    known = replace(KNOWN, graph_layer_bytes=10, draft_graph_bytes=1_000_000)
    load = replace(LOAD, max_num_seqs=4, max_num_batched_tokens=64, drafts=5, reads_hidden=True)
    count = captured(4, 64, 5)
    plain = graph_line(SMALL, replace(load, reads_hidden=False), known, "")
    made = graph_line(SMALL, replace(load, drafts_at_once=True), known, "")
    assert plain is not None
    assert made is not None
    assert made.bytes - plain.bytes == count.largest_full // 6 * 5 * SMALL.vocab_size * 6


def test_a_type_with_buffers_of_its_own_says_so() -> None:
    line = own_line(SMALL, replace(LOAD, model_type="odd"), KNOWN)
    assert line is not None
    assert (line.low_bytes, line.bytes, line.high_bytes) == (40, 80, 120)
    assert own_line(SMALL, LOAD, KNOWN) is None


def test_an_indexers_workspace_stays_and_its_logits_pass() -> None:
    """Beside experts the larger of the two workspaces; logits beside the forward pass, not the sampler."""
    sparse = replace(LOAD, indexer=Reserved(kept=10**6, passing=50))
    few = replace(KNOWN, logit_millibytes=0)
    assert activation_peak(SMALL, sparse, few) == activation_peak(SMALL, LOAD, few) + 10**6 + 50
    assert activation_peak(SMALL, sparse, KNOWN) == activation_peak(SMALL, LOAD, KNOWN) + 10**6
    shape = replace(SMALL, expert_width=6, experts_per_token=2)
    assert activation_peak(shape, sparse, KNOWN) == activation_peak(SMALL, LOAD, KNOWN) + 10**6


def test_what_an_indexer_reserves_follows_the_length() -> None:
    """40 entries of 132 B for each token of max_model_len; DeepSeek-V4 divides them by its rate of 4."""
    sparse, compressed = (kvplan.load_model(f"deepseek-ai/DeepSeek-{name}") for name in ("V3.2", "V4-Pro"))
    assert reserved(sparse, 163_840, 8192, (0, 33)).kept == 40 * 163_840 * 132
    assert reserved(compressed, 1_000_000, 8192, (0, 31)).kept == 40 * 1_000_000 // 4 * 132
    assert reserved(sparse, 1_000_000, 8192, (0, 31)).kept == 40 * 1_000_000 * 132
    assert reserved(sparse, 1_000_000, 8192, (0, 32)).kept == 16 * 1_000_000 * 132
    assert reserved(kvplan.load_model("qwen3-8b"), 40_960, 8192, (0, 33)) == Reserved()


def test_graphs_count_only_where_they_are_estimated_and_made() -> None:
    shape, inside = replace(SMALL, num_layers=2), replace(KNOWN, graph_layer_bytes=11)
    line = graph_line(shape, LOAD, inside, "")
    count = captured(4, 10, 0).number
    assert line is not None
    assert line.bytes == 2 * count * 11
    assert line.high_bytes == line.bytes + 3 + line.bytes // 2
    assert graph_line(shape, LOAD, KNOWN, "") is None
    assert graph_line(shape, replace(LOAD, enforce_eager=True), inside, "") is None
    four = graph_line(shape, replace(LOAD, tensor_parallel_size=4), inside, "")
    assert four is not None
    assert four.bytes == line.bytes * 3 // 2


@pytest.mark.parametrize(
    ("seqs", "tokens", "drafts", "largest", "counts"),
    [
        (64, 8192, 0, 0, (19, 11)),
        (128, 32768, 0, 0, (35, 19)),
        (16, 8192, 0, 0, (7, 5)),
        (1024, 8192, 0, 0, (51, 51)),
        (256, 32768, 0, 0, (51, 35)),
        (64, 8192, 0, 2048, (147, 11)),
        (32, 2048, 3, 0, (33, 17)),
        (32, 2048, 15, 0, (32, 32)),
        (32, 2496, 0, 0, (11, 7)),
    ],
)
def test_how_many_graphs_are_captured(
    seqs: int, tokens: int, drafts: int, largest: int, counts: tuple[int, int]
) -> None:
    """As "Profiling CUDA graph memory: PIECEWISE=…, FULL=…" of 0.21 to 0.25 logs counts them."""
    assert captured(seqs, tokens, drafts, largest=largest)[:2] == counts


@given(st.integers(1, 2048), st.integers(1, 70_000), st.integers(0, 16), st.booleans(), st.booleans())
def test_more_requests_never_capture_fewer_graphs(
    seqs: int, tokens: int, drafts: int, wide: bool, by_request: bool
) -> None:
    less = captured(seqs, tokens, 0, wide=wide)
    more = captured(seqs + 1, tokens, 0, wide=wide)
    assert less.piecewise <= more.piecewise + 1  # the batch itself is a size of its own where it is small
    assert less.full <= more.full + 1
    found = captured(seqs, tokens, drafts, wide=wide, by_request=by_request)
    assert found.piecewise >= 1
    assert 0 <= found.full <= found.piecewise
    apart = captured(seqs, tokens, drafts, wide=wide, by_request=by_request, apart=True)
    assert (
        apart.piecewise
        == captured(seqs, tokens, drafts, wide=wide, by_request=by_request, mode=PIECEWISE).piecewise
    )
    assert apart[1:] == found[1:] or found[1:] == (
        1,
        found.largest_full,
    )  # V1 keeps one where nothing is whole


def test_what_is_requested_is_rounded_up() -> None:
    budget = vllm_budget(gpu="g", total_bytes=10_001, weights=WEIGHTS, shape=SMALL, load=LOAD, known=KNOWN)
    assert budget.total_bytes - budget.unused_bytes == 9_001


@given(
    total=st.integers(0, 10**12),
    percent=st.integers(0, 100),
    amounts=st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 10**11)), max_size=5),
)
def test_the_lines_the_pool_and_what_is_unused_make_the_total(
    total: int, percent: int, amounts: list[tuple[int, int]]
) -> None:
    usable = total * percent // 100
    lines = tuple(about(str(at), amount, margin, "") for at, (amount, margin) in enumerate(amounts))
    budget = left_over("g", total, usable, lines, calibrated=True)
    assert 0 <= budget.kv_pool_low_bytes <= budget.kv_pool_bytes <= budget.kv_pool_high_bytes <= usable
    spent = sum(line.bytes for line in lines)
    if budget.kv_pool_bytes:
        assert spent + budget.kv_pool_bytes + budget.unused_bytes == total
    else:
        assert spent + budget.unused_bytes >= total or usable == spent
    assert all(0 <= line.low_bytes <= line.bytes <= line.high_bytes for line in lines)


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 16), st.booleans())
def test_ranks_that_talk_have_no_less_than_a_lone_gpu(tp: int, pp: int, dp: int, calibrated: bool) -> None:
    """Over tensor, pipeline or expert parallelism; more of one never takes less."""
    from kvplan.engines.vllm.memory.coefficients import vllm_coefficients

    for release in ((0, 9), (0, 11), (0, 14), (0, 17), (0, 19), (0, 24), (0, 33)):
        known = replace(vllm_coefficients(release), calibrated=calibrated)
        load = replace(LOAD, tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp)
        lone = replace(LOAD, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1)
        found, least = (non_torch_line(SMALL, each, known, "") for each in (load, lone))
        assert found.bytes >= least.bytes
        assert found.high_bytes >= least.high_bytes
        assert 0 <= found.low_bytes <= found.bytes <= found.high_bytes
        assert non_torch(SMALL, replace(load, tensor_parallel_size=tp + 1), known) >= found.bytes
