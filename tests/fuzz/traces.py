"""Workloads: any numbers through the simulated scheduler, bent trace files and plans through the commands."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from random import Random
from typing import Any

from kvplan.plans.arrival import Arrival
from kvplan.simulation.schedulers import simulate_any as serve
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.trtllm import TrtllmEngine
from kvplan.simulation.trtllm.settings import CHUNKING, POLICIES
from kvplan.simulation.vllm.replica import Trace
from kvplan.simulation.vllm.settings import Engine, Group
from tests.fuzz.mutate import bent_bytes, bent_lines, value
from tests.fuzz.watch import FaultError, asked, command

SMALL = (0, 1, 2, 3, 5, 15, 16, 17, 31, 60, 100, 200)
WILD = (-1, -(10**9), 10**6, 10**9, 10**12, 10**18, 2**63, 0.5, math.nan, math.inf, True, None, "1", [1])
GROUPS = (
    (Group(),), (Group("window", 16, 40), Group()), (Group("window", 16, 20),) * 2,
    (Group("window", 16, 100), Group("window", 16, 20), Group()), (Group("chunk", 16, 32), Group()),
    (Group("state"), Group("state"), Group()), (Group("full", 16), Group("full", 32)),
    (Group("state", 64), Group("full", 16)), (Group("window", 32, 40), Group("full", 16)),
)  # fmt: skip
SETTINGS: dict[str, tuple[Any, ...]] = {
    "blocks": (1, 5, 10, 20, 60, 200), "batch": (16, 64, 100, 1000), "sequences": (1, 4, 16),
    "length": (50, 300, 1000), "caching": (True, True, True, False), "chunked": (True, True, False),
    "threshold": (0, 0, 20), "watermark": (0.0, 0.0, 0.05, 0.5), "reserve": (True, False),
    "policy": ("fcfs", "fcfs", "priority"), "overlap": (True, False), "states": ("none", "align"),
    "retention": (None, None, 0, 16, 48), "release": ("0.27", "0.30", "0.31", "0.32", "0.33"),
}  # fmt: skip

SGLANG: dict[str, tuple[Any, ...]] = {
    "blocks": (16, 20, 40, 100, 300), "block": (1, 1, 4, 16), "chunk": (None, 16, 64, 160),
    "batch": (16, 100, 1000), "sequences": (1, 4, 16), "length": (50, 300, 1000),
    "caching": (True, True, False), "policy": ("fcfs", "lpm", "lof", "dfs-weight"),
    "order": ("lru", "lru", "lfu", "fifo", "mru", "filo", "priority", "slru"), "overlap": (True, False),
    "mixed": (False, False, True), "conservativeness": (1.0, 0.0, 0.3, 2.0), "fixed": (True, False),
}  # fmt: skip

TRTLLM: dict[str, tuple[Any, ...]] = {
    "blocks": (5, 10, 20, 60, 200), "block": (1, 8, 16), "batch": (16, 64, 300, 1000),
    "sequences": (1, 4, 16), "length": (50, 300, 1000), "caching": (True, True, False),
    "partial": (True, True, False), "policy": POLICIES, "chunking": (None, *CHUNKING),
    "overlap": (True, False, False),
}  # fmt: skip
KINDS: tuple[tuple[Any, dict[str, tuple[Any, ...]]], ...] = (
    (Engine, SETTINGS), (Engine, SETTINGS), (SglangEngine, SGLANG), (TrtllmEngine, TRTLLM),
)  # fmt: skip


def _rows(random: Random, wild: bool) -> list[Arrival]:
    rows, at = [], 0
    texts: list[list[int]] = [[]]
    for _ in range(random.randrange(12)):
        at += random.choice((0, 0, 10**3, 10**6, 10**9))
        ids = list(random.choice(texts))
        ids = ids[: random.randint(0, len(ids))] if random.random() < 0.4 else ids
        ids += [random.randrange(10**6) for _ in range(random.randrange(6))]
        if random.random() < 0.1:  # no chain of prefixes
            random.shuffle(ids)
        texts.append(ids)
        row: list[Any] = [at, random.choice(SMALL) or 5, random.choice(SMALL) or 5, ids, random.randrange(3)]
        if wild and random.random() < 0.1:
            row[random.choice((0, 1, 2, 4))] = random.choice(WILD)
        rows.append(Arrival(*row))
    return rows


def core(random: Random) -> None:
    """The scheduler: an answer, the same in single steps, or a refusal."""
    wild = random.random() < 0.3
    kind, known = random.choice(KINDS)
    settings = {name: random.choice(choice) for name, choice in known.items()}
    settings["blocks"] += 20 * random.randrange(3)
    if wild and random.random() < 0.3:
        settings[random.choice([*known])] = random.choice(WILD)
    if kind is Engine:
        settings["groups"] = random.choice(GROUPS)
    engine: Any = kind(**settings)
    trace = Trace(_rows(random, wild), random.choice((16, 16, 16, 32, 64, 7)))
    time = StepTime(random.choice((1, 1000, 10**6)), random.choice((0, 1000)), random.choice((0, 7)))
    found = asked(lambda: serve(trace, engine, time, rows=not wild and known is SETTINGS))
    if wild:
        return
    single = asked(lambda: serve(trace, engine, time, jump=False, rows=True))
    if (found is None) != (single is None):
        raise FaultError("steps taken together are refused, or single ones")
    if found is not None and found.columns != single.columns:
        raise FaultError("steps taken together give another answer than single ones")
    if found is not None and known is SETTINGS and found.rows != single.rows:
        raise FaultError("steps taken together give another answer than single ones")
    if found is not None:
        for name in ("finished_ns", "first_token_ns"):
            for end, no in zip(found.columns[name], found.columns["refused"]):
                if (end < 0) != bool(no):
                    raise FaultError(f"{name} {end} of a request that was {'' if no else 'not '}refused")


def _text(random: Random) -> bytes:
    """A trace file of some format."""
    rows, at = random.randrange(1, 8), 0
    lines: list[str] = []
    kind = random.randrange(4)
    if kind == 1:
        lines.append("arrival,prompt,answer")
    if kind == 2:
        lines.append("TIMESTAMP,ContextTokens,GeneratedTokens")
    for _ in range(rows):
        at += random.choice((0, 10, 1000, -5 if random.random() < 0.1 else 1))
        prompt, answer = random.choice((0, 1, 511, 512, 513, 3000)), random.choice((0, 1, 20, 100))
        if kind == 1:
            lines.append(f"{at / 1000},{prompt},{answer}")
        elif kind == 2:
            lines.append(f"2023-11-16 18:15:{at % 60:02}.{at % 1000:03},{prompt},{answer}")
        else:
            row: dict[str, Any] = {"timestamp": at, "input_length": prompt, "output_length": answer}
            if random.random() < 0.8:
                row["hash_ids"] = list(range(-(-prompt // 512)))
            if kind == 3:
                row = {"chat_id": 1, "parent_chat_id": -1, "turn": 1, "type": "text"} | row
            if random.random() < 0.1:
                row[random.choice(list(row))] = value(random)
            lines.append(json.dumps(row))
    text = "\n".join(lines) + "\n"
    if random.random() < 0.35:
        text = _other(random)
    elif kind in (0, 3) and random.random() < 0.1:
        text = "[" + ",\n".join(lines) + "]"
    if random.random() < 0.5:
        text = bent_lines(random, text, ["input_length", "output_length", "hash_ids", "timestamp"])
    data = text.encode("utf-8", errors="replace")
    return bent_bytes(random, data) if random.random() < 0.3 else data


MEANS = ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_prompt_tokens",
         "request_generation_tokens")  # fmt: skip
STEP = (
    "Iteration(3): 1 context requests, 512 context tokens, 7 generation requests, 7 generation tokens,"
    " iteration elapsed time: 21.50 ms, GPU KV cache usage: 12.5%\n"
)
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,472,18,490,b\n"
VIDUR = "num_prefill_tokens,num_decode_tokens,pd_ratio\n3772.0,54,69.8\n20,1,20\n"


def _other(random: Random) -> str:
    """A trace of the formats that nest, or what --calibrate reads."""
    kind = random.randrange(8)
    if kind < 4:
        rows = [(_weka, _dynamo, _aiperf, _load)[kind](random, at) for at in range(random.randrange(1, 6))]
        for row in rows:
            if random.random() < 0.1:
                row[random.choice(list(row))] = value(random)
        return "".join(json.dumps(row) + "\n" for row in rows)
    if kind < 6:
        return BURSTGPT if kind == 4 else VIDUR
    if kind == 6:
        return STEP * 9
    names = ["num_requests_running", *(f"{name}_{end}" for name in MEANS for end in ("sum", "count"))]
    return "".join(f'vllm:{name}{{engine="0"}} {random.choice((0, 1.0, 8.5))}\n' for name in names)


def _lengths(random: Random) -> tuple[int, int, list[int]]:
    prompt = random.choice((0, 1, 63, 64, 130, 3000))
    return prompt, random.choice((0, 1, 20)), list(range(-(-prompt // 64)))


def _weka(random: Random, at: int) -> dict[str, Any]:
    prompt, answer, ids = _lengths(random)
    request = {"t": at, "type": "n", "in": prompt, "out": answer, "hash_ids": ids}
    agent = {"t": at, "type": "subagent", "requests": [request, value(random)]}
    scope = random.choice(("local", "global"))
    inner = [request, agent if random.random() < 0.3 else request]
    return {"id": f"s{at}", "block_size": 64, "hash_id_scope": scope, "requests": inner}


def _dynamo(random: Random, at: int) -> dict[str, Any]:
    prompt, answer, ids = _lengths(random)
    replay = {"trace_block_size": 64, "input_length": prompt, "input_sequence_hashes": ids}
    request = {"request_received_ms": at, "output_tokens": answer, "replay": replay}
    event = {"event_type": random.choice(("request_end", "request_end", "tool")), "request": request}
    return {"event": event} if random.random() < 0.5 else event


def _aiperf(random: Random, at: int) -> dict[str, Any]:
    prompt, answer, _ = _lengths(random)
    metrics = {"input_sequence_length": {"value": prompt}, "output_sequence_length": {"value": answer}}
    return {"metadata": {"request_start_ns": at}, "metrics": metrics, "error": None}


def _load(random: Random, at: int) -> dict[str, Any]:
    prompt, answer, _ = _lengths(random)
    return {
        "completed": 5, "total_input_tokens": prompt, "total_output_tokens": answer,
        "request_throughput": 1.5, "mean_ttft_ms": 20.5, "mean_tpot_ms": 9.0 * at,
    }  # fmt: skip


PLAN = """\
kvplan: plan/v1
model: llama-3.2-1b
engine: {engine}
gpu: l4
replicas: 1
serve:
  max_model_len: 4096
workload:
  trace: {name}
  trace_format: mooncake
  trace_block: 512
  ttft: 1s
  tpot: 50ms
require:
  goodput: 95%
  hit_rate: 50%
  preemptions: 1%
  ttft: 2s
  pool: safe
"""
PLAN_KEYS = ["trace", "trace_format", "trace_block", "ttft", "goodput", "hit_rate", "pool", "replicas"]


def simulate(random: Random, folder: Path) -> None:
    """The scheduler itself, trace files, and the commands that read them."""
    kind = random.randrange(100)
    if kind < 70:
        core(random)
        return
    data = _text(random)
    path = folder / ("trace.csv" if random.random() < 0.2 else "trace.jsonl")
    if random.random() < 0.1:
        data, path = gzip.compress(data), folder / "trace.jsonl.gz"
        data = data[: -random.randrange(1, 9)] if random.random() < 0.3 else data
    path.write_bytes(data)
    options = [
        word
        for words in (
            ["--trace-format", random.choice(("mooncake", "azure", "bailian", "csv", "weka", "x"))],
            ["--trace-columns", random.choice(("prompt,answer,arrival", "a", "prompt,answer", ",,"))],
            ["--trace-block", random.choice(("0", "16", "512", "-1", "x"))],
            ["--first", random.choice(("0", "1", "3", "x", "1e9"))],
            ["--evict", random.choice(("lru", "belady,lfu", "x"))],
        )
        if random.random() < 0.12
        for word in words
    ]
    if kind < 94:
        sizes = random.choice(("1,10", "1k", "0", "-3", "x", "1,2,1000000"))
        command(["simulate", "--trace", str(path), "--hit-rates", sizes, *options])
    elif kind < 97:
        words = ["simulate", "llama-3.2-1b", "--gpu", "l4", "--max-model-len", "4096", "--trace", str(path)]
        words += random.choice(([], ["-e", "sglang"], ["-e", "trtllm"]))
        if random.random() < 0.4:
            words += ["--calibrate", str(path), "--generate", "requests=20,rate=2,input=100,output=9"]
            words.remove("--trace")
            words.remove(str(path))
        command([*words, "--quick", "--replicas", random.choice(("1", "2", "0", "x")), *options])
    else:
        plan = folder / "plan.yaml"
        text = bent_lines(
            random,
            PLAN.format(name=path.name, engine=random.choice(("vllm@0.32", "sglang", "trtllm"))),
            PLAN_KEYS,
        )
        plan.write_text(text, encoding="utf-8", errors="replace")
        command(["check", str(plan)] if random.random() < 0.5 else ["simulate", str(plan), "--quick"])
