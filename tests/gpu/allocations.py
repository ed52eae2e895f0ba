"""One start of the installed vLLM with random weights, and what its allocator did meanwhile.

    python -m tests.gpu.allocations OUT.json [--until-available] --model FOLDER [words of vllm serve …]

FOLDER holds a config.json. It needs a CUDA GPU, vLLM, and nothing else on the GPU; nothing is fetched.
The file has what the worker found (consumed, peak, graphs, pool), the allocator's state at each step, and
for loading and for determine_available_memory the tensors that were alive at the peak, by the line that
made them. tests/data/measured.yaml and the rules of `kvplan.engines.vllm.memory.profile_peak` and `…splits`
come from such records. VLLM_CACHE_ROOT, TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR in an empty folder
make a start cold; the same folders again, a warm one. With --until-available the start ends where the pool is
known, before it is allocated: a half of the time.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

EVENTS = 400_000
FRAMES, GROUPS = 8, 45
_STEPS = ("load_model", "determine_available_memory", "initialize_from_config", "compile_or_warm_up_model")

Event = Mapping[str, Any]
Live = dict[int, tuple[int, str]]


class Peak(NamedTuple):
    """start, over: bytes before, and beyond that at the peak. at_peak, left: tensors that came since, alive
    then and at the end."""

    start: int
    over: int
    end: int
    at_peak: list[dict[str, Any]]
    left: list[dict[str, Any]]


def place(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost lines outside torch's allocator, without folders."""
    own = [frame for frame in frames if "torch/cuda/memory" not in frame["filename"]][:FRAMES]
    return " < ".join(f"{Path(one['filename']).name}:{one['line']} {one['name']}" for one in own)


def _step(live: Live, event: Event) -> int:
    """One event's change of what is allocated."""
    if event["action"] == "alloc":
        live[event["addr"]] = event["size"], place(event.get("frames", ()))
        return int(event["size"])
    if event["action"] == "free_requested" and event["addr"] in live:
        return -live.pop(event["addr"])[0]
    return 0


def replay(events: Sequence[Event], begin: int, end: int) -> Peak:
    """The peak of events[begin:end], after all that came before."""
    live: Live = {}
    start = sum(_step(live, event) for event in events[:begin])
    before, now, most, at_peak = dict(live), start, start, dict(live)
    for event in events[begin:end]:
        now += _step(live, event)
        if now > most:
            most, at_peak = now, dict(live)
    return Peak(start, most - start, now, grouped(at_peak, before), grouped(live, before))


def grouped(live: Live, before: Live) -> list[dict[str, Any]]:
    """Tensors that were not there before, by the place that made them, the largest first."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for address, (size, made) in live.items():
        if before.get(address) is not live[address]:
            found[made][size] += 1
    rows = [
        {
            "bytes": sum(size * count for size, count in sizes.items()),
            "sizes": sizes.most_common(4),
            "at": made,
        }
        for made, sizes in found.items()
    ]
    return sorted(rows, key=lambda row: -int(str(row["bytes"])))[:GROUPS]


class StoppedError(Exception):
    """The pool is known, and that was all that was asked."""


def record(words: Sequence[str], until_available: bool = False) -> dict[str, Any]:
    """Start the engine in this process, as `kvplan validate --with vllm` does, and tell."""
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    import torch

    from kvplan.proof.validate.installed.workers import vllm as worker

    memory: Any = torch.cuda.memory
    found: dict[str, Any] = {"words": list(words), "points": {}}
    marks: dict[str, int] = {}

    def events() -> list[Event]:
        traces: list[list[Event]] = memory._snapshot()["device_traces"]
        return traces[0]

    def point(name: str) -> None:
        free, total = torch.cuda.mem_get_info()
        state = torch.cuda.memory_stats()
        kinds = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current")
        found["points"][name] = {"free": free, "total": total, **{kind: state[kind] for kind in kinds}}

    def around(cls: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(cls, name)

        def outer(self: Any, *given: Any, **more: Any) -> Any:
            point(f"before {name}")
            if name == "load_model":
                memory._record_memory_history(
                    enabled="all", context="alloc", stacks="python", max_entries=EVENTS
                )
            marks[name] = len(events())
            answer = inner(self, *given, **more)
            point(f"after {name}")
            if name == "determine_available_memory":
                trace, begin = events(), marks[name]
                memory._record_memory_history(enabled=None)
                found["loading"] = replay(trace, 0, begin)._asdict()
                found["measuring"] = replay(trace, begin, len(trace))._asdict()
                found["available"] = int(answer)
                if until_available:
                    found["worker"] = worker.look(self)
                    raise StoppedError
            return answer

        setattr(cls, name, outer)

    config = worker.configured([*words, "--load-format", "dummy", "--skip-tokenizer-init"])
    config.parallel_config.distributed_executor_backend = "uni"
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor
    from vllm.v1.worker.gpu_worker import Worker

    for name in _STEPS:
        around(Worker, name)
    found["settings"] = worker.settings_of(config)
    try:
        core = EngineCore(config, Executor.get_class(config), False)
    except StoppedError:
        return found
    found["worker"] = worker.look(core.model_executor.driver_worker)
    found["cache"] = worker.cache_of(core, config)
    return found


if __name__ == "__main__":
    short = sys.argv[2] == "--until-available"
    told = record(sys.argv[2 + short :], short)
    Path(sys.argv[1]).write_text(json.dumps(told, default=str), encoding="utf-8")
    os._exit(0)  # an engine in this process leaves threads behind
