"""The memory budget beside the log: stand-ins with round figures, and one start that was published.

The start: Gemma-2-9B on one H100 of 79.19 GiB, vLLM 0.19, utilization 0.95.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kvplan.api import compare, load_model
from kvplan.comparison import Comparison, Verdict
from kvplan.comparison import compare as compare_with
from kvplan.engines.observed import Observation, Row, exact_count
from kvplan.engines.observed.printed import parse_count, parse_ratio
from kvplan.files.gpus.find import load_gpu
from kvplan.results import Budget, BudgetLine
from kvplan.units import GIB
from tests.comparison.logs import observed, vllm_log


def _budget(*, calibrated: bool = True) -> Budget:
    lines = (
        BudgetLine("weights", 100, 100, 100, ""),
        BudgetLine("activation peak", 100, 90, 110, ""),
    )
    pool = (16 * GIB, 15 * GIB, 17 * GIB)
    return Budget("h100-sxm-80gb", 80 * GIB, lines, *pool, 0, calibrated)


def _with_budget(budget: Budget, *, share: Fraction | None = Fraction(9, 10), **row: Any) -> Comparison:
    figures = Row(kv_tokens=exact_count(131072), max_concurrency=parse_ratio("1.00"), **row)
    observation = Observation("vllm", engine_version="0.32.0", rows=(figures,))
    given = {} if share is None else {"gpu_memory_utilization": share}
    return compare_with(load_model("llama-3.1-8b"), observation, given, budget=budget)


def test_a_budget_stands_beside_the_log() -> None:
    found = _with_budget(_budget(), weights_bytes=exact_count(120), activation_peak_bytes=exact_count(95))
    assert not found.row("weights_bytes").agrees
    peak = found.row("activation_peak_bytes")
    assert (peak.overlaps, peak.inside, peak.agrees) == (True, True, False)
    assert found.row("kv_tokens").agrees
    assert found.verdict is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("calibrated", "peak", "agrees"),
    [(True, 112, True), (True, 113, False), (False, 111, False), (False, 110, True)],
)
def test_the_tolerance_is_for_calibrated_releases(calibrated: bool, peak: int, agrees: bool) -> None:
    found = _with_budget(_budget(calibrated=calibrated), activation_peak_bytes=exact_count(peak))
    assert found.row("activation_peak_bytes").overlaps is agrees
    assert found.verdict is (Verdict.AGREES if agrees else Verdict.DIFFERS)
    if peak == 111:
        assert found.reason == "activation peak is outside the interval of the memory budget"


@pytest.mark.parametrize(("weights", "agrees"), [(102, True), (103, False)])
def test_weights_are_no_estimate_of_a_release(weights: int, agrees: bool) -> None:
    found = _with_budget(_budget(calibrated=False), weights_bytes=exact_count(weights))
    assert found.row("weights_bytes").agrees is agrees


def test_the_printed_pool_decides_the_tokens() -> None:
    """The budget's pool is off, which is a row; the tokens are those of the printed pool."""
    found = _with_budget(_budget(), available_kv_bytes=parse_count("18.00", "GiB"))
    assert not found.row("kv_pool_bytes").agrees
    assert found.row("kv_tokens").predicted == 147456


def test_a_pool_that_is_not_the_budget_s() -> None:
    pool = parse_count("16.00", "GiB")
    unknown = _with_budget(_budget(), share=None, available_kv_bytes=pool)
    assert unknown.row("kv_pool_bytes").agrees
    assert "default share of the memory" in str(unknown.row("kv_pool_bytes").explanation)
    other = _with_budget(_budget(), share=None, available_kv_bytes=parse_count("20.00", "GiB"))
    assert other.row("kv_pool_bytes").predicted is None
    assert "does not tell gpu_memory_utilization" in str(other.row("kv_pool_bytes").explanation)
    text = vllm_log(config=", kv_cache_memory_bytes=17179869184, gpu_memory_utilization=0.9")
    found = compare(observation=observed(text), gpu="h100")
    assert found.row("available_kv_bytes").predicted is None
    assert any("asked for by its size" in note for note in found.notes)


GEMMA = (
    "INFO 04-01 10:00:00 [utils.py:1] non-default args: {'model': 'google/gemma-2-9b-it', "
    "'max_model_len': 8192, 'gpu_memory_utilization': 0.95, 'enable_prefix_caching': False}",
    "INFO 04-01 10:00:07 [gpu_model_runner.py:2] Model loading took 17.22 GiB memory and 4 seconds",
)
SUMMARY = (
    "INFO 04-01 10:00:20 [gpu_worker.py:5] Free memory on device (78.68/79.19 GiB) on startup. Desired GPU "
    "memory utilization is (0.95, 75.23 GiB). Actual usage is 17.22 GiB for weight, 3.65 GiB for peak "
    "activation, 0.25 GiB for non-torch memory, and 0.61 GiB for CUDAGraph memory."
)


def _gemma(*lines: str, version: str = "0.19.0") -> Observation:
    text = vllm_log(
        version=version,
        model="google/gemma-2-9b-it",
        length=8192,
        pools=("54.12",),
        tokens="168,880",
        concurrency="20.60",
        config=", enable_prefix_caching=False",
        lines=(*GEMMA, *lines),
    )
    return observed(text)


def test_the_memory_of_a_real_start() -> None:
    found = compare(observation=_gemma(SUMMARY))
    assert found.verdict is Verdict.AGREES
    for name in ("weights_bytes", "activation_peak_bytes", "non_torch_bytes", "kv_pool_bytes"):
        row = found.row(name)
        assert row.overlaps
        assert None not in (row.predicted_low, row.predicted, row.predicted_high)
        assert (row.predicted_low or 0) <= (row.predicted or 0) <= (row.predicted_high or 0)
    pool = found.row("kv_pool_bytes")
    assert pool.ratio is not None
    assert abs(pool.ratio - 1) < Fraction(2, 100)
    # Before 0.20 the graphs are not taken off the pool.
    assert found.row("cuda_graph_bytes").predicted is None
    assert found.row("kv_tokens").predicted == 168880


def test_flags_tell_the_gpu() -> None:
    told = compare(observation=_gemma(), gpu="h100-sxm")
    assert told.row("kv_pool_bytes").agrees
    of_size = compare(observation=_gemma(), gpu="79.19GiB")
    assert of_size.row("kv_pool_bytes").agrees
    smaller = compare(observation=_gemma(), gpu="a100-40gb")
    assert smaller.verdict is Verdict.DIFFERS


def _no_pool(tokens: str) -> Comparison:
    log = vllm_log(version="0.19.0", length=8192, pools=(), tokens=tokens, concurrency=None)
    weights = GEMMA[1].replace("17.22", "14.99")
    return compare(observation=observed(log + weights), gpu="h100", gpu_memory_utilization="0.9", tp=1)


def test_without_a_printed_pool_the_budget_decides_where_it_can() -> None:
    held = _no_pool("443,600")
    assert held.row("kv_tokens").agrees
    assert "the memory budget is an estimate" in str(held.row("kv_tokens").explanation)
    other = _no_pool("100,000")
    assert other.row("kv_tokens").predicted is None
    assert any("does not hold the reported figures" in note for note in other.notes)


def test_without_a_gpu_or_weights_a_note_says_why() -> None:
    alone = compare(observation=observed(vllm_log()))
    assert alone.row("available_kv_bytes").predicted is None
    assert "does not tell the GPU" in str(alone.row("available_kv_bytes").explanation)


def test_the_pool_that_tells_the_gpu_proves_nothing() -> None:
    told = compare(observation=_gemma())
    assert told.recognised["gpu"].endswith("memory, by the pool that it leaves)")
    assert told.row("weights_bytes").agrees
    pool = told.row("kv_pool_bytes")
    assert pool.predicted is None
    assert "proves nothing" in str(pool.explanation)


def test_weights_in_another_format_are_those_of_the_log() -> None:
    """The card's tensors are in bfloat16; the log says AWQ, and how much was loaded."""
    lines = tuple(line.replace("17.22", "6.10") for line in (*GEMMA, SUMMARY))
    text = vllm_log(
        version="0.19.0", model="google/gemma-2-9b-it", length=8192, pools=("65.24",), lines=lines
    )
    found = compare(observation=observed(text), quantization="awq")
    weights = found.row("weights_bytes")
    assert weights.predicted is None
    assert "the budget takes the printed ones" in str(weights.explanation)
    assert found.row("kv_pool_bytes").agrees


@pytest.mark.parametrize("printed", ["6.10", "12.00", "30.00"])
def test_weights_that_were_taken_from_the_log_are_held_against_nothing(printed: str) -> None:
    """The same format, other weights: what the budget took is no prediction; the row says what is known."""
    lines = tuple(line.replace("17.22", printed) for line in (*GEMMA, SUMMARY))
    text = vllm_log(
        version="0.19.0", model="google/gemma-2-9b-it", length=8192, pools=("50.00",), lines=lines
    )
    weights = compare(observation=observed(text)).row("weights_bytes")
    assert weights.predicted is None
    assert str(weights.explanation).startswith("the tensors that are known come to 17.2")


def test_an_uncalibrated_release_says_so() -> None:
    found = compare(observation=_gemma(SUMMARY), engine="vllm@0.9")
    assert any("mind the pool's interval" in note for note in found.notes)


def test_graphs_that_are_measured_in_shared_memory_are_not_judged() -> None:
    """GB10: what is free before and after counts what the CPU takes meanwhile; a GPU of its own is judged."""
    lines = (
        "INFO 06-11 19:18:29 [gpu_model_runner.py:6526] Estimated CUDA graph memory: 4.15 GiB total",
        "INFO 06-11 19:18:20 [gpu_model_runner.py:4900] Model loading took 14.99 GiB memory",
    )
    text = vllm_log(version="0.24.0", pools=("60.00",), lines=lines)
    for gpu, judged in (("gb10", False), ("rtx-pro-6000", True)):
        found = compare(observation=observed(text), gpu=gpu, settings={"model_runner": "v1"})
        row = found.row("cuda_graph_bytes")
        assert (row.predicted is not None) == judged
        assert row.explanation


LLAMA = (
    "Model loading took 15.0 GiB memory and 5.420225 seconds",
    "[gpu_worker.py:692] Available KV cache memory: 56.21 GiB",
    "[kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per "
    "request: 3.51x",
    "[gpu_worker.py:955] Free memory on device (78.84/79.25 GiB) on startup. Desired GPU memory utilization "
    "is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for "
    "peak activation, and 0.23 GiB for CUDAGraph memory.",
)
"""A server of 0.31 on an A100, as it is published (the start `idx-llama31-8b-031`)."""


def test_the_peak_that_a_summary_prints_since_0_27_has_the_graphs_in_it() -> None:
    log = observed("\n".join(f"(EngineCore pid=326) INFO 10-06 17:00:33 {line}" for line in LLAMA))
    found = compare("meta-llama/Llama-3.1-8B-Instruct", observation=log, gpu="a100-sxm-80gb")
    row = found.row("transient_peak_bytes")
    assert row.agrees
    assert float(row.predicted or 0) == pytest.approx(float(row.reported), rel=0.01)
    assert found.verdict is Verdict.AGREES


def test_a_log_that_says_wsl_has_the_whole_card() -> None:
    """Starts of 0.27.1 on an RTX 4090 printed 20.52 GiB with 0.92 and 18.65 with 0.85: of 23.99 GiB."""
    said = "WARNING 04-01 10:00:00 [interface.py:5] Using 'pin_memory=False' as WSL is detected."
    text = vllm_log(
        version="0.27.1", model="Qwen/Qwen2.5-0.5B-Instruct", length=4096, pools=("20.52",), tokens=None,
        concurrency=None, lines=(said,),
    )  # fmt: skip
    asked: dict[str, Any] = {"gpu": "rtx-4090", "gpu_memory_utilization": Fraction(92, 100)}
    found = compare("Qwen/Qwen2.5-0.5B-Instruct", observation=observed(text), **asked)
    assert any("WSL" in note for note in found.notes)
    bare = compare("Qwen/Qwen2.5-0.5B-Instruct", observation=observed(text.replace(said + "\n", "")), **asked)
    more = int(found.row("kv_pool_bytes").predicted or 0) - int(bare.row("kv_pool_bytes").predicted or 0)
    card = load_gpu("rtx-4090")
    assert card.memory_nvml_bytes is not None
    assert card.memory_total_bytes is not None
    assert more == pytest.approx(0.92 * (card.memory_nvml_bytes - card.memory_total_bytes), abs=2)
