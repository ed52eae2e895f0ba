"""Small random workloads over everything that SGLang's scheduler can be set to, for recording and fuzzing."""

from __future__ import annotations

import random
from typing import Any

from scripts.scheduler_scenarios import sample_rows

Scenario = dict[str, Any]
ORDERS = (*["lru"] * 5, "lfu", "fifo", "mru", "filo", "priority", "slru")


def windowed(seed: int) -> Scenario:
    """The workload of a seed on a full pool and one of windows, the radix cache being on."""
    made, chance = scenario(seed), random.Random(-1 - seed)
    engine, page = made["engine"], made["engine"]["page_size"]
    window = chance.choice([1, 7, 16, 33, 64, 128])
    least = 2 * -(-window // page) + 2 * -(-max(engine["chunked_prefill_size"], 0) // page) + 4
    pages = engine["pages"]
    engine |= {
        "radix": True, "ignore_eos": False, "window": window,
        "window_pages": chance.choice([pages, max(16, pages // 2), min(pages, least), max(16, pages // 5)]),
    }  # fmt: skip
    return made


def stated(seed: int) -> Scenario:
    """The workload of a seed on a pool of states beside the full one, the radix cache being on."""
    made, chance = scenario(seed), random.Random(-2 - seed)
    engine, page = made["engine"], made["engine"]["page_size"]
    extra = page > 1 or chance.random() < 0.8
    overlap = engine["overlap"] and extra
    each = 1 + (1 + overlap if extra else 0)
    most = engine["max_running_requests"] = min(engine["max_running_requests"], chance.choice([2, 4, 8]))
    engine |= {
        "radix": True, "ignore_eos": False, "mixed": False, "overlap": overlap, "extra_buffer": extra,
        "state_slots": most * each + most + chance.choice([1, 2, 8, 60]),
        "state_chunk": max(page, chance.choice([4, 16, 64])), "track_interval": chance.choice([16, 64, 256]),
    }  # fmt: skip
    return made


def scenario(seed: int) -> Scenario:
    """The workload of a seed. The pool holds at least the largest request."""
    chance = random.Random(seed)
    page = chance.choice([1, 1, 1, 4, 16])
    wide = page * chance.choice([1, 4, 16]) if page > 1 else chance.choice([1, 4, 16, 64])
    pressed = chance.random() < 0.6
    rows = sample_rows(chance, wide, chance.choice([12, 24, 40] if pressed else [4, 12, 30]), pressed)
    longest = max(row["input"] + row["output"] for row in rows)
    pages = -(-longest // page) + 2
    spare = chance.choice([1, 1.2, 1.5, 2] if pressed else [1, 1.5, 4])
    length = longest + chance.randint(8, 100) if chance.random() < 0.8 else max(64, longest * 2 // 3)
    engine = {
        "pages": max(16, int(pages * spare) + chance.choice([1, 2, 9])), "page_size": page,
        "chunked_prefill_size": chance.choice([-1, page * 16, page * 32, 256, 8192]),
        "max_prefill_tokens": chance.choice([64, 300, 16384]),
        "max_running_requests": chance.choice([2, 5, 40]), "context_length": length,
        "radix": chance.random() < 0.85,
        "schedule_policy": chance.choice(["fcfs", "fcfs", "lpm", "lpm", "lof", "dfs-weight"]),
        "radix_eviction_policy": chance.choice(ORDERS),
        "overlap": chance.random() < 0.6, "mixed": chance.random() < 0.25,
        "schedule_conservativeness": chance.choice([1.0, 1.0, 0.3, 1.3]),
        "ignore_eos": chance.random() < 0.25,
    }  # fmt: skip
    if engine["mixed"]:
        engine["chunked_prefill_size"] = max(64, engine["chunked_prefill_size"])
    step = {
        "fixed_ns": chance.choice([1000, 1_000_003]),
        "token_ns": chance.choice([0, 1000, 25_000]),
        "context_ns": chance.choice([0, 7]),
    }
    return {"trace": {"kind": "explicit", "block_tokens": wide, "rows": rows}, "engine": engine, "step": step}
