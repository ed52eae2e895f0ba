"""kvplan's scheduler beside vLLM's own in one process, scenario by scenario, and its large runs.

Where vLLM is not installed the baseline is kvplan's own scheduler in single steps (named so in the report):
``.venv-vllm/bin/python -m bench.simulate`` measures against vLLM. CPU seconds inside vLLM's schedule() and
update_from_output() against those of `simulation.vllm.replica.simulate`, the best of three, with the names of
the trace worked out before (they serve a whole sweep). Large runs are set beside the time that they may take.
"""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random
from statistics import median
from time import process_time
from typing import Any

from bench.figures import Figure
from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import simulate_any
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.timeline import AnyEngine
from kvplan.simulation.trtllm import TrtllmEngine
from kvplan.simulation.trtllm.settings import IN_ORDER
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine
from scripts.check_scheduler import TRACES, trace_of, vllm_engine
from scripts.scheduler_traces import rows_of

Scenario = tuple[str, dict[str, Any], dict[str, Any]]
ENGINE: dict[str, Any] = {
    "block_size": 16, "num_blocks": 2200, "max_num_batched_tokens": 8192, "max_num_seqs": 256,
    "max_model_len": 131_072, "enable_prefix_caching": True, "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0, "watermark": 0.0, "scheduler_reserve_full_isl": True,
    "policy": "fcfs", "async_scheduling": False, "groups": [{"kind": "full"}], "mamba_cache_mode": "none",
}  # fmt: skip
SESSIONS: dict[str, Any] = {
    "kind": "generated", "block_tokens": 16, "seed": 1, "sessions": 200, "turns": [1, 6], "systems": 4,
    "system_blocks": [4, 60], "user_blocks": [1, 30], "output": [1, 700], "seconds": 12, "think": 3.0,
}  # fmt: skip
WINDOWS = [{"kind": "window", "window": 1024}] * 5 + [{"kind": "full"}]
STATES = [{"kind": "state", "block_size": 131_072}] * 3 + [{"kind": "full"}]
ALIGNED = {"block_size": 64, "groups": [{"kind": "state"}] * 3 + [{"kind": "full"}]}
CONVERSATION = {"kind": "mooncake", "file": "mooncake_fast25_conversation.jsonl", "block_tokens": 512}
AZURE = {"kind": "azure", "block_tokens": 16, "file": "azure_llm_2023_conv.csv"}
SCENARIOS: list[Scenario] = [
    ("sessions, roomy", {"num_blocks": 20_000}, SESSIONS),
    ("sessions, tight", {}, SESSIONS),
    ("sessions, tight, async", {"async_scheduling": True}, SESSIONS),
    ("no prefix caching", {"enable_prefix_caching": False}, SESSIONS),
    ("budget of 512", {"num_blocks": 3000, "max_num_batched_tokens": 512}, SESSIONS),
    ("8 sequences", {"num_blocks": 3000, "max_num_seqs": 8}, SESSIONS),
    ("whole prompts", {"num_blocks": 3000, "max_model_len": 8192, "enable_chunked_prefill": False}, SESSIONS),
    ("long-prefill threshold", {"num_blocks": 3000, "long_prefill_token_threshold": 256}, SESSIONS),
    ("watermark", {"watermark": 0.05}, SESSIONS),
    ("no reserve", {"max_num_batched_tokens": 512, "scheduler_reserve_full_isl": False}, SESSIONS),
    ("priority", {"policy": "priority"}, SESSIONS | {"priorities": 3}),
    ("five windows and full", {"num_blocks": 9000, "groups": WINDOWS}, SESSIONS),
    ("windows, no cache", {"num_blocks": 9000, "groups": WINDOWS, "enable_prefix_caching": False}, SESSIONS),
    ("windows, async", {"num_blocks": 9000, "groups": WINDOWS, "async_scheduling": True}, SESSIONS),
    ("states, no cache", {"num_blocks": 2000, "groups": STATES, "enable_prefix_caching": False}, SESSIONS),
    (
        "states, aligned", {**ALIGNED, "num_blocks": 2500, "mamba_cache_mode": "align"},
        SESSIONS | {"block_tokens": 64},
    ),
    ("all at once", {"num_blocks": 3000}, SESSIONS | {"time_scale": [0, 1]}),
    ("chat", {"num_blocks": 6000}, AZURE | {"count": 2000}),
    ("chat, fast", {"num_blocks": 8000}, AZURE | {"count": 3000, "time_scale": [1, 4]}),
    (
        "code, budget of 2,048", {"num_blocks": 12_000, "max_num_batched_tokens": 2048},
        AZURE | {"file": "azure_llm_2023_code.csv", "count": 2000, "time_scale": [1, 4]},
    ),
    ("conversation", {"num_blocks": 40_000}, CONVERSATION | {"count": 1000, "time_scale": [2, 1]}),
    (
        "conversation, async", {"num_blocks": 40_000, "async_scheduling": True},
        CONVERSATION | {"count": 1000, "time_scale": [2, 1]},
    ),
    (
        "blocks of 512", {"block_size": 512, "num_blocks": 1500},
        CONVERSATION | {"count": 1500, "time_scale": [2, 1]},
    ),
    ("32k", {"num_blocks": 12_000, "max_model_len": 32_768}, CONVERSATION | {"count": 1000}),
    (
        "synthetic", {"num_blocks": 30_000},
        CONVERSATION | {"file": "mooncake_fast25_synthetic.jsonl", "count": 800, "time_scale": [4, 1]},
    ),
]  # fmt: skip
STEP = {"fixed_ns": 6_000_000, "token_ns": 25_000, "context_ns": 25}
MILLION = 1_000_000
BOUND = "the time that it may take"
GIB = 1 << 30


def vllm_seconds(engine: dict[str, Any], trace: dict[str, Any]) -> float | None:
    """CPU time inside vLLM's schedule() and update_from_output(); None where vLLM is not installed."""
    try:
        from scripts.record_vllm_scheduler import Oracle

        oracle = Oracle(engine, trace["block_tokens"])
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
    oracle.run(rows_of(TRACES, trace), STEP)
    return inside


def kvplan_seconds(engine: dict[str, Any], said: dict[str, Any], jump: bool) -> tuple[float, int]:
    """CPU time of the same trace, the best of three (of single steps one), and its steps."""
    trace, settings, time, best, steps = trace_of(said, TRACES), vllm_engine(engine), StepTime(**STEP), 1e9, 0
    if settings.caching:
        for group in settings.groups:
            trace.names(settings.hashed, group.block)
    for _ in range(3 if jump else 1):
        began = process_time()
        steps = simulate(trace, settings, time, jump=jump).steps
        best = min(best, process_time() - began)
    return best, steps


def ratios() -> list[Figure]:
    """One figure a scenario whose trace is here, then the median and the least of all."""
    found: list[Figure] = []
    baseline = "vLLM's own scheduler"
    for name, more, trace in SCENARIOS:
        if trace["kind"] != "generated" and not (TRACES / trace["file"]).exists():
            continue
        engine = ENGINE | more
        theirs = vllm_seconds(engine, trace)
        ours, steps = kvplan_seconds(engine, trace, True)
        if theirs is None:
            theirs, baseline = kvplan_seconds(engine, trace, False)[0], "its own single steps"
        detail = f"{ours * 1000:.0f} ms against {theirs * 1000:.0f} ms of CPU"
        what = f"scheduler, {name}: {steps:,} steps"
        found.append(Figure(what, baseline, theirs / ours, "≥ 40 × vLLM's", detail))
    all_of_them = [figure.ratio for figure in found]
    many = f"of {len(found)} scenarios"
    return [
        *found,
        Figure(f"scheduler, median {many}", baseline, median(all_of_them), "≥ 100 × vLLM's", "see above"),
        Figure(f"scheduler, least {many}", baseline, min(all_of_them), "≥ 40 × vLLM's", "see above"),
    ]


def generated(count: int, rate: float, seed: int = 1) -> Trace:
    """Requests of 100 to 3,000 tokens and answers of 1 to 400 that come as a Poisson process."""
    chance, at, rows = Random(seed), 0, []
    for _ in range(count):
        at += int(chance.expovariate(rate) * 1e9)
        rows.append(Arrival(at, chance.randint(100, 3000), chance.randint(1, 400)))
    return Trace(rows, 16)


def million(count: int = MILLION) -> dict[str, float]:
    """CPU seconds and the most memory of this process, which should be a fresh one."""
    from resource import RUSAGE_SELF, getrusage

    trace = generated(count, 4)
    began = process_time()
    steps = simulate(trace, Engine(blocks=20_000), StepTime()).steps
    spent = process_time() - began
    return {"seconds": spent, "steps": steps, "bytes": getrusage(RUSAGE_SELF).ru_maxrss * 1024}


def replicas(count: int = 64, each: int = 12_000) -> float:
    """CPU seconds of a fleet: each replica serves its share of one stream, dealt in turn."""
    rows = generated(count * each, 4 * count).arrivals
    traces = [Trace(rows[place::count], 16) for place in range(count)]
    began = process_time()
    for trace in traces:
        simulate(trace, Engine(blocks=20_000), StepTime())
    return process_time() - began


def configurations(count: int = 400) -> float:
    """CPU seconds of ``count`` settings of the engine, all on the same 1,000 requests with their prefixes."""
    trace = trace_of(SESSIONS | {"sessions": 280}, TRACES)
    settings = [
        Engine(blocks=blocks, batch=batch, sequences=sequences, overlap=overlap)
        for blocks in range(1500, 1500 + count // 16 * 100, 100)
        for batch in (512, 2048, 4096, 8192)
        for sequences in (64, 256)
        for overlap in (False, True)
    ][:count]
    began = process_time()
    for engine in settings:
        simulate(trace, engine, StepTime())
    return process_time() - began


def whole_trace(engine: AnyEngine, words: str, most: float) -> Figure | None:
    """The whole Mooncake conversation trace, from the file to the columns' percentiles. most: seconds."""
    path = TRACES / str(CONVERSATION["file"])
    if not path.exists():
        return None
    from kvplan.files.traces.arrivals import read_arrivals

    best = 1e9
    for _ in range(2):
        began = process_time()
        read = read_arrivals(path, name=path.name)
        answer = simulate_any(Trace(read.arrivals, read.wide), engine, StepTime(token_ns=12_000))
        waits = sorted(end - row.at_ns for end, row in zip(answer.columns["first_token_ns"], read.arrivals))
        best = min(best, process_time() - began)
    what = f"the whole conversation trace, {words}{len(waits):,} requests, {answer.steps:,} steps"
    return Figure(what, BOUND, most / best, f"{most:g} s", f"{best:.2f} s of CPU: read, named, served")


def large() -> list[Figure]:
    """What may take so long, and does."""
    alone = [sys.executable, "-m", "bench.simulate", "--million"]
    found = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
    fleet, sweep = replicas(), configurations()
    traces = [
        whole_trace(Engine(blocks=60_000), "", 1.5),
        whole_trace(SglangEngine(blocks=60_000, block=16), "SGLang's rules, ", 3),
        whole_trace(TrtllmEngine(blocks=30_000, chunking=IN_ORDER), "TensorRT-LLM's rules, ", 3),
    ]
    what = f"1,000,000 requests, {found['steps']:,} steps"
    took = f"{found['seconds']:.1f} s of CPU, {found['bytes'] / GIB:.2f} GiB"
    return [
        *(trace for trace in traces if trace),
        Figure(what, BOUND, 60 / found["seconds"], "60 s, 1.5 GB", took),
        Figure("64 replicas of 12,000 requests", BOUND, 30 / fleet, "30 s", f"{fleet:.1f} s of CPU"),
        Figure("400 configurations", BOUND, 180 / sweep, "90 s on 2 cores", f"{sweep:.1f} s of CPU"),
    ]


def figures() -> list[Figure]:
    return [*ratios(), *large()]


def main() -> None:
    if "--million" in sys.argv:
        sys.stdout.write(json.dumps(million()) + "\n")
        return
    for figure in figures():
        sys.stdout.write(
            f"{figure.ratio:8.1f} ×  {figure.what}  (baseline: {figure.baseline}; {figure.detail})\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
