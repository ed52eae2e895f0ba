"""Logs written here, in the shapes that vLLM prints, with figures from known arithmetic."""

from __future__ import annotations

from kvplan.engines.observed import Observation
from kvplan.files.logs import parse_log


def vllm_log(
    *,
    version: str = "0.32.0",
    model: str = "meta-llama/Llama-3.1-8B",
    length: int = 131072,
    pools: tuple[str, ...] = ("16.00",),
    tokens: str | None = "131,072",
    concurrency: str | None = "1.00",
    config: str = "",
    lines: tuple[str, ...] = (),
) -> str:
    """The start-up of one server; pools: GiB of each rank."""
    ranks = len(pools)
    rows = [
        f"INFO 04-01 10:00:00 [core.py:1] Initializing a V1 LLM engine (v{version}) with config: "
        f"model='{model}', max_seq_len={length}, tensor_parallel_size={ranks}{config}",
        *lines,
    ]
    for rank, pool in enumerate(pools):
        prefix = f"(Worker_TP{rank} pid={rank + 9}) " if ranks > 1 else ""
        rows.append(f"{prefix}INFO 04-01 10:00:09 [gpu_worker.py:2] Available KV cache memory: {pool} GiB")
    if tokens is not None:
        rows.append(f"INFO 04-01 10:00:10 [kv_cache_utils.py:3] GPU KV cache size: {tokens} tokens")
    if concurrency is not None:
        rows.append(
            "INFO 04-01 10:00:10 [kv_cache_utils.py:4] Maximum concurrency for "
            f"{length:,} tokens per request: {concurrency}x"
        )
    return "\n".join(rows) + "\n"


def observed(text: str) -> Observation:
    """The observation of a log's text."""
    return parse_log([text.encode()])
