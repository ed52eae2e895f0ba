"""kvplan's scheduler on a trace beside vLLM's own, in one process, or beside its own single steps."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

from bench.figures import Figure
from kvplan.simulate import StepTime, simulate
from scripts.check_scheduler import engine_of, trace_of
from scripts.scheduler_traces import rows_of

ENGINE: dict[str, Any] = {
    "block_size": 16, "num_blocks": 2200, "max_num_batched_tokens": 8192, "max_num_seqs": 256,
    "max_model_len": 131_072, "enable_prefix_caching": True, "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0, "watermark": 0.0, "scheduler_reserve_full_isl": True,
    "policy": "fcfs", "async_scheduling": True, "groups": [{"kind": "full"}], "mamba_cache_mode": "none",
}  # fmt: skip
TRACE: dict[str, Any] = {
    "kind": "generated", "block_tokens": 16, "seed": 1, "sessions": 200, "turns": [1, 6], "systems": 4,
    "system_blocks": [4, 60], "user_blocks": [1, 30], "output": [1, 700], "seconds": 12, "think": 3.0,
}  # fmt: skip
STEP = {"fixed_ns": 6_000_000, "token_ns": 25_000, "context_ns": 25}


def vllm_seconds() -> float | None:
    """CPU time inside vLLM's schedule() and update_from_output(); None where vLLM is not installed."""
    try:
        from scripts.record_vllm_scheduler import Oracle

        oracle = Oracle(ENGINE, 16)
    except ImportError:
        return None
    inside = 0.0

    def timed(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            nonlocal inside
            began = process_time()
            try:
                return call(*arguments)
            finally:
                inside += process_time() - began

        return run

    for name in ("schedule", "update_from_output"):
        setattr(oracle.scheduler, name, timed(getattr(oracle.scheduler, name)))
    oracle.run(rows_of(Path(), TRACE), STEP)
    return inside


def kvplan_seconds(jump: bool) -> tuple[float, int]:
    """CPU time of the same trace, the best of three, its names worked out before; and its steps."""
    trace, engine, time, best, steps = trace_of(TRACE, Path()), engine_of(ENGINE), StepTime(**STEP), 1e9, 0
    trace.names(engine.hashed, 16)
    for _ in range(3):
        began = process_time()
        steps = simulate(trace, engine, time, jump=jump).steps
        best = min(best, process_time() - began)
    return best, steps


def figure() -> Figure:
    ours, steps = kvplan_seconds(True)
    theirs, name = vllm_seconds(), "vLLM's own scheduler"
    if theirs is None:
        (theirs, _), name = kvplan_seconds(False), "its own single steps (vLLM is not installed)"
    return Figure(
        f"{steps:,} steps of a scheduler with async scheduling and preemptions",
        name, theirs / ours, "≥ 100 × vLLM's", f"{ours * 1000:.0f} ms against {theirs * 1000:.0f} ms",
    )  # fmt: skip
