"""Filling a paged cache through its block tables against a plain ``torch.Tensor.copy_`` of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from bench.figures import Figure

if TYPE_CHECKING:
    from kvplan.proof.validate.memory import Cache
    from kvplan.proof.validate.workload_test import Run

POOL_BYTES = 256 * 2**20
TURNS = 7
CASES = (
    ("qwen3-8b", "vllm", "0.32"),
    ("deepseek-v3", "vllm", "0.32"),
    ("qwen3-8b", "sglang", "0.5.23"),
    ("qwen3-8b", "trtllm", "1.2"),
)


def fill_rates() -> list[Figure]:
    """Filling and reading back, by turns with the copy: blocks as the engine first hands them out, as it does
    after half of the requests ended ("scattered"), and in an order without any rule ("at random")."""
    return [figure for case in CASES for figure in _figures(*case)]


def _figures(card: str, engine: str, version: str) -> list[Figure]:
    import torch

    from kvplan.api import load_model, make_settings
    from kvplan.engines.tensors import layout_of
    from kvplan.proof.validate.memory import allocate

    settings = make_settings(kv_cache_memory=POOL_BYTES, tokens=700, max_model_len=1024)
    layout = layout_of(load_model(card), engine, version, settings)
    source = torch.zeros(layout.bytes, dtype=torch.uint8)
    target = torch.empty_like(source)
    target.copy_(source)
    rates: dict[str, list[tuple[float, float]]] = {}
    with allocate(layout, "cpu") as cache:
        for name, run in _runs(cache):
            for what, call in ((f"fill{name}", run.rewrite), (f"read back{name}", run.read)):
                for _ in range(TURNS):
                    start = perf_counter()
                    target.copy_(source)
                    copied = layout.bytes / (perf_counter() - start)
                    before = run.checked.bytes + run.bytes_written
                    start = perf_counter()
                    call()
                    done = run.checked.bytes + run.bytes_written - before
                    rates.setdefault(what, []).append((done / (perf_counter() - start), copied))
            assert not run.checked.wrong
    return [
        Figure(
            f"{name}, {card} under {engine}",
            "torch copy_ of the same bytes",
            median(ours / theirs for ours, theirs in pairs),
            "≥ 0.5",
            f"{median(ours for ours, _ in pairs) / 1e9:.1f} GB/s against"
            f" {median(theirs for _, theirs in pairs) / 1e9:.1f} GB/s",
        )
        for name, pairs in rates.items()
    ]


def _runs(cache: Cache) -> Iterator[tuple[str, Run]]:
    """A full cache, refilled, and filled from a shuffled free queue."""
    from kvplan.proof.validate.workload_test import Run

    run = Run(cache)
    run.fill()
    yield "", run
    run.refill()
    yield " scattered", run
    run = Run(cache)
    for pool in run.tables.pools:
        Random(0).shuffle(pool._queue)
    run.fill()
    yield " at random", run
