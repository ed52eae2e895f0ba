"""Replay recorded scenarios of an engine's scheduler: python -m scripts.check_scheduler FILE [--traces DIR]

FILE has the answers of vLLM's or SGLang's own scheduler in virtual time: {"scenarios": {name: {"trace",
"engine", "step", "requests", "steps"}}} (.gz too). A trace is {"kind": "explicit", "block_tokens": N,
"rows": [{"at_ns", "input", "output", "ids", "priority"}]}, or of kind mooncake, azure (files of DIR) or
generated. One line each; the last is ``N of M scenarios equal``: all request columns and the SHA-256 over
all steps. Exit 1 where one differs."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import simulate_any
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.time.results import COLUMNS, STEP_COLUMNS
from kvplan.simulation.time.timeline import AnyEngine
from kvplan.simulation.vllm.drafts import Drafts
from kvplan.simulation.vllm.offload import Offload, Tier
from kvplan.simulation.vllm.replica import StepTime, Trace
from kvplan.simulation.vllm.settings import Engine, Group
from scripts.scheduler_traces import rows_of

TRACES = Path("../shared/traces")


def engine_of(said: dict[str, Any]) -> AnyEngine:
    """A scenario's engine in kvplan's words; SGLang's has pages."""
    return _sglang(said) if "pages" in said else vllm_engine(said)


def vllm_engine(said: dict[str, Any]) -> Engine:
    """A scenario of scripts.record_vllm_scheduler."""
    block = said["block_size"]
    return Engine(
        blocks=said["num_blocks"], block=block, batch=said["max_num_batched_tokens"],
        groups=tuple(
            Group(
                group["kind"], group.get("block_size", block), group.get("window", group.get("chunk", 0)),
                group.get("checkpoint", 0),
            )
            for group in said["groups"]
        ),
        sequences=said["max_num_seqs"], length=said["max_model_len"], caching=said["enable_prefix_caching"],
        chunked=said["enable_chunked_prefill"], threshold=said["long_prefill_token_threshold"],
        watermark=said["watermark"], reserve=said["scheduler_reserve_full_isl"], policy=said["policy"],
        overlap=said["async_scheduling"], states=said["mamba_cache_mode"], retention=said.get("retention"),
        release=said.get("release", "0.32"), offload=_offload_of(said.get("offload")),
        drafts=_drafts_of(said.get("drafts")), stages=said.get("stages", 1),
    )  # fmt: skip


def _sglang(said: dict[str, Any]) -> SglangEngine:
    """A scenario of scripts.record_sglang_scheduler."""
    chunk = said["chunked_prefill_size"]
    return SglangEngine(
        blocks=said["pages"], block=said["page_size"], chunk=chunk if chunk > 0 else None,
        batch=said["max_prefill_tokens"], sequences=said["max_running_requests"],
        length=said["context_length"], caching=said["radix"], policy=said["schedule_policy"],
        order=said["radix_eviction_policy"], overlap=said["overlap"], mixed=said["mixed"],
        conservativeness=said["schedule_conservativeness"], fixed=said["ignore_eos"],
        window=said.get("window", 0), window_blocks=said.get("window_pages", 0),
        state_slots=said.get("state_slots", 0), extra_buffer=said.get("extra_buffer", True),
        state_chunk=said.get("state_chunk", 64), track_interval=said.get("track_interval", 256),
    )  # fmt: skip


def _drafts_of(said: dict[str, Any] | None) -> Drafts | None:
    """A scenario's drafts (scripts.scheduler_scenarios.drafting)."""
    if said is None:
        return None
    return Drafts(
        said["tokens"], tuple(said["chances"]), said["ahead"], said["slots"], said["drops"], said["seed"]
    )


def _offload_of(said: dict[str, Any] | None) -> Offload | None:
    """A scenario's tiers (scripts.record_vllm_offload)."""
    if said is None:
        return None
    tiers = tuple(Tier(**tier) for tier in said["tiers"])
    return Offload(said["chunk"], tiers, policy=said["policy"], answers=said["answers"])


def trace_of(said: dict[str, Any], folder: Path) -> Trace:
    arrivals = [
        Arrival(row["at_ns"], row["input"], row["output"], row["ids"], row.get("priority", 0))
        for row in rows_of(folder, said)
    ]
    return Trace(arrivals, said["block_tokens"])


def difference(scenario: dict[str, Any], folder: Path, *, jump: bool = True) -> str | None:
    """Where kvplan's answer first differs from the recorded one; None: nowhere."""
    answer = simulate_any(
        trace_of(scenario["trace"], folder), engine_of(scenario["engine"]), StepTime(**scenario["step"]),
        jump=jump, rows=True,
    )  # fmt: skip
    assert answer.rows is not None
    if "error" in scenario:
        return None
    steps = scenario["steps"]
    for name in COLUMNS:
        for number, (ours, theirs) in enumerate(zip(answer.columns[name], scenario["requests"][name])):
            if ours != theirs:
                where = _first_step(answer.rows, steps)
                return f"{name} of request {number} is {ours}, the engine's {theirs}; {where}"
    if answer.steps != steps["count"] or answer.digest() != steps["sha256"]:
        return f"{answer.steps} steps, the engine's {steps['count']}; {_first_step(answer.rows, steps)}"
    return None


def _first_step(rows: list[Any], steps: dict[str, Any]) -> str:
    known = dict(enumerate(steps.get("first", ())))
    known |= {place * steps["every"]: row for place, row in enumerate(steps.get("sampled", ()))}
    for place, theirs in sorted(known.items()):
        ours = list(rows[place]) if place < len(rows) else None
        if ours != theirs:
            return f"step {place} is {ours}, the engine's {theirs} ({', '.join(STEP_COLUMNS)})"
    return "no recorded step differs"


def main(arguments: list[str] | None = None) -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("file", type=Path)
    ask.add_argument(
        "--traces", type=Path, help="where trace files are; else in traces/ beside FILE's folder"
    )
    ask.add_argument("--only", nargs="*", help="names of scenarios")
    ask.add_argument("--single-steps", action="store_true", help="take no steps together")
    args = ask.parse_args(arguments)
    beside = args.file.resolve().parent.parent / "traces"
    traces = args.traces or (beside if beside.is_dir() else TRACES)
    opened = gzip.open if args.file.suffix == ".gz" else open
    with opened(args.file, "rt") as stream:
        scenarios = json.load(stream)["scenarios"]
    asked = [name for name in scenarios if not args.only or name in args.only]
    equal = 0
    for name in asked:
        began = time.process_time()
        try:
            found = difference(scenarios[name], traces, jump=not args.single_steps)
        except KvplanError as error:
            found = f"refused: {error.message}"
        except FileNotFoundError as error:
            found = f"its trace is not there: {error.filename}"
        equal += found is None
        print(
            f"{name:36} {'equal' if found is None else found}  ({time.process_time() - began:.2f} s)",
            flush=True,
        )
    print(f"{equal} of {len(asked)} scenarios equal")
    return int(equal < len(asked))


if __name__ == "__main__":
    sys.exit(main())
