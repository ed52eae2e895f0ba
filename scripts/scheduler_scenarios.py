"""Small random workloads over everything that vLLM's scheduler can be set to, for recording and fuzzing."""

from __future__ import annotations

import random
from math import gcd, lcm
from typing import Any

Scenario = dict[str, Any]


def scenario(seed: int) -> Scenario:
    """The workload of a seed. The pool holds at least the largest request, so nothing waits for ever."""
    chance = random.Random(seed)
    caching = chance.random() < 0.85
    return _scenario(chance, caching, *_groups(chance, caching))


def hybrid(seed: int) -> Scenario:
    """The workload of a seed on states that are kept at block boundaries, the prefix cache being on; half of
    them with a state for the end of a prompt, and some beside windows."""
    chance = random.Random(seed)
    block = chance.choice([4, 16, 16, 32, 48])
    state: dict[str, Any] = {"kind": "state"}
    if chance.random() < 0.6:
        state["checkpoint"] = chance.choice([1, 1, 16, 64])
    groups = [dict(state) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.25:
        groups += [{"kind": "window", "window": chance.choice([1, block, 2 * block + 3, 5 * block])}]
    if chance.random() < 0.15:
        groups += [{"kind": "ring", "block_size": 4}]
    return _scenario(chance, True, [*groups, {"kind": "full"}], "align", block)


def pipelined(seed: int) -> Scenario:
    """The workload of a seed on two to four pipeline stages."""
    made, chance = scenario(seed), random.Random(f"{seed} stages")
    made["engine"]["stages"] = chance.choice([2, 2, 3, 4])
    return made


METHODS = ("ngram", "eagle", "mtp", "draft_model")


def drafting(seed: int) -> Scenario:
    """The workload of a seed on full attention with speculative decoding: how a method takes slots and
    whether it drops a hit's last block are vLLM's own (config/vllm.py, config/speculative.py)."""
    chance = random.Random(seed)
    made = _scenario(
        chance, chance.random() < 0.85, [{"kind": "full"}], "none", chance.choice([4, 16, 16, 32])
    )
    method, tokens = chance.choice(METHODS), chance.choice([1, 1, 2, 3, 5, 8])
    right = chance.choice([0.0, 0.3, 0.6, 0.8, 1.0])
    made["engine"]["drafts"] = {
        "method": method, "tokens": tokens, "seed": chance.randrange(1 << 20),
        "chances": [
            round(right * (1 - place * chance.choice([0, 0.05])) * (1 << 32)) for place in range(tokens)
        ],
        "ahead": 0 if method == "ngram" else tokens, "slots": int(method == "draft_model"),
        "drops": method in ("eagle", "mtp"),
    }  # fmt: skip
    least = -(-(made["engine"]["max_model_len"] + tokens) // made["engine"]["block_size"]) + 2
    made["engine"]["num_blocks"] = max(made["engine"]["num_blocks"], least)
    return made


def _scenario(
    chance: random.Random, caching: bool, groups: list[dict[str, Any]], states: str, block: int
) -> Scenario:
    kept = [group for group in groups if group["kind"] != "ring"]
    hashed = gcd(*(group.get("block_size", block) for group in kept)) if caching else 1
    wide = hashed * chance.choice([1, 1, 2, 4])
    if states != "align" and any(group["kind"] == "state" for group in groups) and caching:
        unit = lcm(*(group.get("block_size", block) for group in groups))
        wide = unit * chance.choice([1, 2])
    pressed = chance.random() < 0.5
    rows = sample_rows(chance, wide, chance.choice([12, 24] if pressed else [4, 12, 30]), pressed)
    longest = max(row["input"] + row["output"] for row in rows)
    sizes = [group.get("block_size", block) for group in groups]
    least = sum(-(-longest // size) + 2 for size in sizes)
    cut = chance.random() < 0.85
    length = longest + chance.randint(1, 100) if chance.random() < 0.8 else max(64, longest * 2 // 3)
    batch = chance.choice([64, 100, 256, 1024, 4096])
    if not cut:
        batch = max(batch, length)
    unit, spare = lcm(*sizes), chance.choice([1, 1.2, 1.5] if pressed else [1, 1.2, 2, 5])
    engine = {
        "block_size": block, "num_blocks": int(least * spare) + 1,
        "max_num_batched_tokens": max(batch, unit),
        "max_num_seqs": chance.choice([2, 5, 40]), "max_model_len": length, "enable_prefix_caching": caching,
        "enable_chunked_prefill": cut,
        "long_prefill_token_threshold": chance.choice([0, 0, 0, 40, 100]) if cut else 0,
        "watermark": chance.choice([0.0, 0.0, 0.05, 0.3]),
        "scheduler_reserve_full_isl": chance.random() < 0.7,
        "policy": "priority" if chance.random() < 0.25 else "fcfs", "async_scheduling": chance.random() < 0.5,
        "groups": groups, "mamba_cache_mode": states, "retention": _retention(chance, groups, unit, caching),
    }  # fmt: skip
    step = {
        "fixed_ns": chance.choice([1000, 1_000_003]),
        "token_ns": chance.choice([0, 1000, 25_000]),
        "context_ns": chance.choice([0, 7]),
    }
    return {"trace": {"kind": "explicit", "block_tokens": wide, "rows": rows}, "engine": engine, "step": step}


def _groups(chance: random.Random, caching: bool) -> tuple[list[dict[str, Any]], str, int]:
    block, sort = chance.choice([4, 16, 16, 32]), chance.random()
    if sort < 0.4:
        return [{"kind": "full"}], "none", block
    if sort < 0.65:
        spans = [chance.choice([1, block, 2 * block + 3, 5 * block, 100]) for _ in range(2)]
        windows: list[dict[str, Any]] = [
            {"kind": "window", "window": spans[0]} for _ in range(chance.randint(1, 3))
        ]
        if chance.random() < 0.4:
            windows.append({"kind": "window", "window": spans[1]})
        if chance.random() < 0.3:
            return windows, "none", block
        if chance.random() < 0.4:
            for window in windows:
                window["block_size"] = block * chance.choice([1, 2])
            return [*windows, {"kind": "full", "block_size": block * chance.choice([1, 2, 4])}], "none", block
        return [*windows, {"kind": "full"}], "none", block
    if sort < 0.72:
        return [{"kind": "full"}, {"kind": "full", "block_size": 2 * block}], "none", block
    if sort < 0.8:
        return [{"kind": "chunk", "chunk": block * chance.choice([1, 3, 8])}, {"kind": "full"}], "none", block
    count = chance.randint(1, 3)
    if caching:
        mode = "align" if chance.random() < 0.8 else "none"
        return [{"kind": "state"}] * count + [{"kind": "full"}], mode, block
    wide = chance.choice([block, 1024, 131_072])
    return [{"kind": "state", "block_size": wide}] * count + [{"kind": "full"}], "none", block


def _retention(chance: random.Random, groups: list[dict[str, Any]], unit: int, caching: bool) -> int | None:
    if not caching or not any(group["kind"] in ("window", "state") for group in groups):
        return None
    return chance.choice([None, 0, 0, unit, 3 * unit])


def sample_rows(chance: random.Random, wide: int, count: int, pressed: bool) -> list[dict[str, Any]]:
    """Prompts that share prefixes, repeat each other, or go on from an answer. pressed: short prompts, long
    answers and all at once, so that running requests are preempted."""
    rows: list[dict[str, Any]] = []
    fresh = iter(range(1, 10**6))
    at, pace = 0, chance.choice([0, 10**4, 10**6] if pressed else [0, 10**5, 10**7, 10**9])
    longest = 90 if pressed else 480
    texts: list[list[int]] = [[]]
    for _ in range(count):
        ids = list(chance.choice(texts[-6:]))
        ids = ids[: chance.randint(0, len(ids))] if chance.random() < 0.3 else ids
        ids += [next(fresh) for _ in range(chance.randint(0, max(1, longest // 3 // wide)))]
        ids = ids[: max(1, longest // wide)] or [next(fresh)]
        prompt = max(1, len(ids) * wide - chance.choice([0, 0, 1, chance.randrange(wide)]))
        answer = chance.choice([1, 2, chance.randint(1, 40), chance.randint(1, 300)])
        answer = chance.randint(60, 250) if pressed else answer
        if chance.random() < 0.7:
            ids = ids + [next(fresh) for _ in range(-(-(prompt + answer) // wide) - len(ids))]
        if chance.random() < 0.1:
            ids = []
        rows.append({
            "at_ns": at, "input": prompt, "output": answer, "ids": ids, "priority": chance.randrange(3),
        })  # fmt: skip
        if ids:
            texts.append(ids[: (prompt + answer) // wide])
        at += chance.randint(0, pace)
    return rows
