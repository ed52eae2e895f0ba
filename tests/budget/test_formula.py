"""The formula of a rank's budget, checked by hand and by its laws."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import about, exact, left_over
from kvplan.engines.vllm.memory import (
    Coefficients,
    Load,
    activation_peak,
    non_torch,
    non_torch_line,
    vllm_budget,
)
from kvplan.units import GIB

KNOWN = Coefficients(
    since="1",
    until=None,
    calibrated=True,
    logit_millibytes=15_000,
    hidden_copies_milli=4_000,
    workspace_milli=1_000,
    workspace_kept=True,
    multimodal_copies_milli=2_000,
    activation_margin=100,
    activation_margin_milli=10,
    non_torch_by_tp=((1, 10), (2, 200), (4, 300)),
    non_torch_pipeline=7,
    non_torch_margin=5,
    graphs_inside=False,
    graph_layer_bytes=11,
    graph_margin=3,
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


def test_non_torch_memory_follows_the_ranks() -> None:
    amounts = [non_torch(replace(LOAD, tensor_parallel_size=ways), KNOWN) for ways in (1, 2, 3, 4, 8)]
    assert amounts == [10, 200, 200, 300, 300]
    assert non_torch(replace(LOAD, pipeline_parallel_size=2), KNOWN) == 10
    assert non_torch(replace(LOAD, data_parallel_size=8), KNOWN) == 300
    measured = non_torch_line(replace(LOAD, pipeline_parallel_size=2), KNOWN, "")
    assert (measured.low_bytes, measured.bytes, measured.high_bytes) == (2, 10, 205)


def test_graphs_count_only_where_they_are_inside_and_made() -> None:
    def names(known: Coefficients, load: Load) -> list[str]:
        shape = replace(SMALL, num_layers=2)
        budget = vllm_budget(gpu="g", total_bytes=GIB, weights=WEIGHTS, shape=shape, load=load, known=known)
        return [line.name for line in budget.lines]

    inside = replace(KNOWN, graphs_inside=True)
    assert "CUDA graphs" not in names(KNOWN, LOAD)
    assert "CUDA graphs" in names(inside, LOAD)
    assert "CUDA graphs" not in names(inside, replace(LOAD, enforce_eager=True))


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
    from kvplan.engines.vllm.coefficients import vllm_coefficients

    for release in ((0, 9), (0, 11), (0, 14), (0, 17), (0, 19), (0, 33)):
        known = replace(vllm_coefficients(release), calibrated=calibrated)
        load = replace(LOAD, tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp)
        lone = replace(LOAD, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1)
        found, least = (non_torch_line(each, known, "") for each in (load, lone))
        assert found.bytes >= least.bytes
        assert found.high_bytes >= least.high_bytes
        assert 0 <= found.low_bytes <= found.bytes <= found.high_bytes
        assert non_torch(replace(load, tensor_parallel_size=tp + 1), known) >= found.bytes
