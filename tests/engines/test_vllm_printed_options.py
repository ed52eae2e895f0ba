"""Every option of vLLM's that its log prints under its own name is a setting of what is compared."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.engines.launch import flags_of_server
from kvplan.engines.vllm.options import OPTIONS
from kvplan.engines.vllm.words.log import SETTINGS

LOG = """\
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:300] vLLM API server version 0.30.0
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:233] non-default args: {{'model': 'Qwen/Qwen3-0.6B', {args}}}
(EngineCore pid=2) INFO 10-01 10:00:01 [core.py:100] Initializing a V1 LLM engine (v0.30.0) with config: \
compilation_config={config}
(EngineCore pid=2) INFO 10-01 10:00:20 [gpu_worker.py:440] Available KV cache memory: 17.20 GiB
"""
COMPILED = "{'mode': <CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>}"
PLAIN = "{'mode': <CompilationMode.NONE: 0>, 'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"


OBJECTS = {"kv_transfer_config", "kv_events_config", "num_redundant_experts"}
"""The log prints them as Python objects or inside one, which are not read."""


def test_none_is_missing() -> None:
    """A flag of the server is an argument that the log lists; variables and keys of objects are not."""
    flags = flags_of_server("vllm")
    printed = {option.name for option in OPTIONS if "--" + option.name.replace("_", "-") in flags}
    assert printed >= {"performance_mode", "runner", "moe_backend", "enable_lora", "limit_mm_per_prompt"}
    assert printed - OBJECTS <= set(SETTINGS)


@pytest.mark.parametrize(
    ("args", "name", "read"),
    [
        ("'performance_mode': 'throughput'", "performance_mode", "throughput"),
        ("'runner': 'pooling'", "runner", "pooling"),
        ("'moe_backend': 'marlin'", "moe_backend", "marlin"),
        ("'kv_offloading_size': 4.0", "kv_offloading_size", "4"),
    ],
)
def test_it_is_read(args: str, name: str, read: str) -> None:
    found = kvplan.compare(log=[LOG.format(args=args, config=COMPILED).encode()], gpu="l4")
    assert found.recognised[name] == f"{read} (args, line 2)"


def test_neither_compiled_nor_captured_is_eager() -> None:
    """-O0 and mode 0 of the compilation config print no enforce_eager."""
    eager, compiled = (
        kvplan.compare(log=[LOG.format(args="'max_model_len': 4096", config=config).encode()], gpu="l4")
        for config in (PLAIN, COMPILED)
    )
    assert eager.recognised["enforce_eager"].startswith("True")
    assert "enforce_eager" not in compiled.recognised
