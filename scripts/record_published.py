"""Record what was published elsewhere and the tests need: start-ups, facts of GPUs, lengths of traces.

    python -m scripts.record_published FOLDER

FOLDER holds data/field_reports.yaml, data/field_reports_2.yaml, data/gpu_facts.yaml and traces/. Only the
figures that are compared are kept, with the source of every row:
tests/data/{field_reports,start_ups,gpu_facts,trace_lengths}.json.gz.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kvplan.files.traces.lengths import read_lengths
from tests.recorded import DATA, packed

STATED = "id source engine engine_version model weight_quant gpu tp pp ep".split()
PRINTED = (
    "weights_gib available_kv_gib activation_peak_gib non_torch_gib cudagraph_estimated_gib num_gpu_blocks"
    " kv_tokens max_concurrency_x max_concurrency_len"
).split()
STARTED = (*STATED, "dp", "model_runner", "compile_cache")
MORE_PRINTED = (*PRINTED, "cudagraph_gib", "total_gpu_gib", "gpu_mem_gib")
"""Of the second collection: which runner served, whether the compiled code was at hand, the GPU's total."""
GPU_FIGURES = ("mem_bw_gbs", "memory_mib_smi", "torch_total_gib")
TRACES = {
    "mooncake_fast25_synthetic.jsonl": "kvcache-ai/Mooncake, FAST25-release, synthetic_trace (Apache-2.0)",
    "azure_llm_2023_code.csv": "Azure/AzurePublicDataset, AzureLLMInferenceTrace_code (CC-BY-4.0)",
}
"""The two smaller traces, one of each format, and whose they are."""


def field_reports(folder: Path) -> Any:
    """vLLM's rows: what the report states and what the server printed."""
    rows = yaml.safe_load((folder / "data" / "field_reports.yaml").read_text(encoding="utf-8"))
    return [
        {name: row.get(name) for name in (*STATED, *PRINTED)} | {"flags": row["flags"]}
        for row in rows
        if row["engine"] == "vllm"
    ]


def start_ups(folder: Path) -> Any:
    """vLLM's rows of the second collection: whole logs of 0.10 to 0.31."""
    rows = yaml.safe_load((folder / "data" / "field_reports_2.yaml").read_text(encoding="utf-8"))
    return [
        {name: row.get(name) for name in (*STARTED, *MORE_PRINTED)} | {"flags": row["flags"]}
        for row in rows
        if row["engine"] == "vllm"
    ]


def gpu_facts(folder: Path) -> Any:
    """Each GPU's name, vendor and the figures that the specs repeat; null where none is known."""
    facts = yaml.safe_load((folder / "data" / "gpu_facts.yaml").read_text(encoding="utf-8"))
    return {
        row["name"]: {"vendor": row["vendor"]}
        | {name: row[name] and row[name]["value"] for name in GPU_FIGURES}
        for row in facts["gpus"]
    }


def trace_lengths(folder: Path) -> Any:
    """[input tokens, output tokens, requests] of every pair of lengths, by rising input."""
    return {
        name: {
            "source": source,
            "lengths": sorted(
                [*pair, count]
                for pair, count in read_lengths(folder / "traces" / name, name=name).pairs.items()
            ),
        }
        for name, source in TRACES.items()
    }


MADE: dict[str, Callable[[Path], Any]] = {
    "field_reports": field_reports,
    "start_ups": start_ups,
    "gpu_facts": gpu_facts,
    "trace_lengths": trace_lengths,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, make in MADE.items():
        body = packed(make(folder))
        (DATA / f"{name}.json.gz").write_bytes(body)
        sys.stdout.write(f"{name}: {len(body):,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
