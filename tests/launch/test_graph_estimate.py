"""VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS of a command or a log: whether graphs are taken off the share."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api.launching import started_readings

NAME = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
LOG = """\
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:300] vLLM API server version 0.24.0
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', \
'max_model_len': 8192}
(EngineCore pid=2) INFO 10-01 10:00:20 [gpu_worker.py:440] Available KV cache memory: 5.10 GiB
"""
OFF = f"""\
(EngineCore pid=2) WARNING 10-01 10:00:20 [gpu_worker.py:541] CUDA graph memory profiling is disabled \
({NAME}=0). Without it, CUDA graph memory is not accounted for during KV cache allocation
"""
ASKED: dict[str, Any] = {
    "engine": "vllm@0.24", "gpu": "rtx-4090-24gb", "max_model_len": 8192, "model_runner": "v1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("word", "read", "named"), [("1", None, False), ("0", False, False), ("off", None, True)]
)
def test_the_variable_is_read(word: str, read: bool | None, named: bool) -> None:
    """Off is a setting; what is no number is named as not read."""
    (reading,) = started_readings(f"{NAME}={word} vllm serve Qwen/Qwen3-8B --max-model-len 8192", "h100")
    assert reading.plan is not None
    assert reading.plan.settings.own.get("estimate_cudagraphs") is read
    assert reading.plan.unread == ((f"{NAME}={word}",) if named else ())


def test_graphs_that_are_not_estimated_leave_the_pool_and_are_named() -> None:
    counted = kvplan.size("qwen3-8b", **ASKED)
    beside = kvplan.size("qwen3-8b", settings={"estimate_cudagraphs": False}, **ASKED)
    assert counted.budget is not None
    assert beside.budget is not None
    (graphs,) = [line.bytes for line in counted.budget.lines if line.name == "CUDA graphs"]
    assert beside.budget.kv_pool_bytes - counted.budget.kv_pool_bytes == graphs
    assert [text for text in beside.warnings if "beside the share" in text]
    assert not [text for text in counted.warnings if "beside the share" in text]


def test_a_start_without_graphs_has_nothing_beside_the_share() -> None:
    eager = kvplan.size("qwen3-8b", settings={"estimate_cudagraphs": False}, enforce_eager=True, **ASKED)
    assert not [text for text in eager.warnings if "beside the share" in text]


@pytest.mark.parametrize("off", [True, False])
def test_a_log_says_it(off: bool) -> None:
    found = kvplan.compare(log=[(LOG + OFF * off).encode()], gpu="rtx-4090-24gb")
    assert ("estimate_cudagraphs" in found.recognised) is off
