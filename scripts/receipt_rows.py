"""Rows of measured start-ups from receipts that an engine's own run wrote.

    python -m scripts.receipt_rows RECEIPT.json … >>tests/data/measured.yaml

`kvplan validate PLAN --with vllm` starts the engine and keeps what it measured; this says it as tests/data
has start-ups, so that `make accuracy` counts it. `first` is what stood in the receipt as predicted. What a
receipt does not tell is null: say there whether the compile cache was cold, and what was not installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kvplan.errors import KvplanError
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.receipt import Receipt
from kvplan.units import GIB

DIGITS = 5
_MEASURED = {
    "available_kv_gib": "engine_pool_bytes",
    "cudagraph_estimated_gib": "engine_graphs_bytes",
    "consumed_gib": "engine_consumed_bytes",
}


def row_of(receipt: Receipt, name: str) -> dict[str, Any]:
    """One start. Raises ValueError for a receipt of kvplan's own run, or without the pool's interval."""
    run, settings = receipt.engine_run, receipt.settings
    figures = {figure.name: figure for figure in receipt.figures}
    pool = figures.get("engine_pool_bytes")
    if not run or pool is None or pool.measured is None or pool.low is None or pool.high is None:
        raise ValueError(f"{name}: no engine measured the pool that its own budget left")
    taken: Mapping[str, Any] = run["settings"]
    found = {key: figures[figure].measured for key, figure in _MEASURED.items() if figure in figures}
    graphs, activation = found.get("cudagraph_estimated_gib"), figures.get("engine_activation_bytes")
    peak = None if activation is None or activation.measured is None else activation.measured + (graphs or 0)
    return {
        "id": name,
        "first": [round(end / GIB, 2) for end in (pool.low, pool.predicted or 0, pool.high)],
        "source": f"kvplan's own start on an {receipt.hardware['name']}, a receipt",
        "engine": run["name"],
        "engine_version": run["version"],
        "model": receipt.model_id,
        "weight_quant": settings.get("quantization") or "none",
        "gpu": receipt.hardware["name"],
        "tp": settings["tensor_parallel_size"],
        "pp": settings["pipeline_parallel_size"],
        "dp": settings["data_parallel_size"],
        "ep": bool(settings.get("enable_expert_parallel")),
        "flags": {
            "gpu_memory_utilization": taken["gpu_memory_utilization"],
            "max_model_len": taken["max_model_len"],
            "max_num_seqs": taken["max_num_seqs"],
            "max_num_batched_tokens": taken["max_num_batched_tokens"],
            "kv_cache_dtype": taken["kv_cache_dtype"],
            "enforce_eager": taken["enforce_eager"],
            "speculative": None,
            "other": [],
        },
        "weights_gib": None,
        **{key: None if value is None else round(value / GIB, DIGITS) for key, value in found.items()},
        "activation_peak_gib": None if peak is None else round(peak / GIB, DIGITS),
        "non_torch_gib": None,
        "total_gpu_gib": round(receipt.hardware["memory_total_bytes"] / GIB, DIGITS),
        "kv_tokens": None,
        "max_concurrency_x": None,
        "max_concurrency_len": None,
        "model_runner": None,
        "compile_cache": None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("receipts", type=Path, nargs="+")
    options = parser.parse_args()
    try:
        rows = [row_of(read_receipt(path).receipt, path.stem) for path in options.receipts]
    except (KvplanError, ValueError) as error:
        parser.error(str(error))
    print(yaml.safe_dump(rows, sort_keys=False, width=140), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
