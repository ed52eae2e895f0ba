"""Filling a paged cache through its block tables against a plain ``torch.Tensor.copy_`` of the same bytes."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from bench.figures import Figure

POOL_BYTES = 256 * 2**20
TURNS = 7
CASES = (
    ("qwen3-8b", "vllm", "0.32"),
    ("deepseek-v3", "vllm", "0.32"),
    ("qwen3-8b", "sglang", "0.5.23"),
    ("qwen3-8b", "trtllm", "1.2"),
)


def fill_rates() -> list[Figure]:
    """The first fill, the fill of scattered blocks, and reading back, by turns with the copy."""
    return [figure for case in CASES for figure in _figures(*case)]


def _figures(card: str, engine: str, version: str) -> list[Figure]:
    import torch

    from kvplan.api import load_model, make_settings
    from kvplan.validate.exercise import Run
    from kvplan.validate.layouts import layout_of
    from kvplan.validate.memory import allocate

    settings = make_settings(kv_cache_memory=POOL_BYTES, tokens=700, max_model_len=1024)
    layout = layout_of(load_model(card), engine, version, settings)
    source = torch.zeros(layout.bytes, dtype=torch.uint8)
    target = torch.empty_like(source)
    target.copy_(source)
    rates: dict[str, list[tuple[float, float]]] = {"fill": [], "fill scattered": [], "read back": []}
    with allocate(layout, "cpu") as cache:
        run = Run(cache)
        run.fill()
        for name in rates:
            if name == "fill scattered":
                run.refill()
            for _ in range(TURNS):
                start = perf_counter()
                target.copy_(source)
                copied = layout.bytes / (perf_counter() - start)
                before = run.checked.bytes + run.bytes_written
                start = perf_counter()
                if name == "read back":
                    run.read()
                else:
                    run.rewrite()
                done = run.checked.bytes + run.bytes_written - before
                rates[name].append((done / (perf_counter() - start), copied))
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
