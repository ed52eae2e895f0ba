"""CUDA graphs of a command: which sizes, in a flag or in the compilation config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import started_readings
from kvplan.engines.vllm.memory.cuda_graphs import captured

SIZES = (1, 2, 4, 8)


@pytest.mark.parametrize(
    "words",
    [
        "--cudagraph-capture-sizes 1 2 4 8",
        "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
        '--compilation-config \'{"mode": 3, "cudagraph_capture_sizes": [1, 2, 4, 8]}\'',
        "--compilation-config.cudagraph_capture_sizes '[1,2,4,8]'",
    ],
)
def test_sizes_are_read(words: str) -> None:
    (reading,) = started_readings(f"vllm serve Qwen/Qwen3-8B --max-model-len 8192 {words}", "h100")
    assert reading.plan is not None
    assert reading.plan.unread == ()
    assert reading.plan.settings.own["cudagraph_capture_sizes"] == SIZES


@pytest.mark.parametrize(
    ("config", "unread"),
    [
        ('{"max_cudagraph_capture_size": 16}', ()),
        ('{"level": 3}', ()),
        ('{"cudagraph_capture_sizes": []}', ("--compilation-config.cudagraph_capture_sizes []",)),
        ('{"cudagraph_capture_sizes": [0]}', ("--compilation-config.cudagraph_capture_sizes [0]",)),
        ('{"cudagraph_capture_sizes": "all"}', ("--compilation-config.cudagraph_capture_sizes all",)),
        ('{"cudagraph_mode": "sometimes"}', ("--compilation-config.cudagraph_mode sometimes",)),
        ('{"custom_ops": ["all"]}', ("--compilation-config.custom_ops ['all']",)),
    ],
)
def test_what_is_not_counted_is_named(config: str, unread: tuple[str, ...]) -> None:
    (reading,) = started_readings(f"vllm serve Qwen/Qwen3-8B --compilation-config '{config}'", "h100")
    assert reading.plan is not None
    assert reading.plan.unread == unread


@given(
    sizes=st.sets(st.integers(1, 600), min_size=1, max_size=40),
    tokens=st.integers(1, 9000),
    seqs=st.integers(1, 600),
)
def test_as_many_as_are_asked_for(sizes: set[int], tokens: int, seqs: int) -> None:
    """None above the batch; full ones of those that a decode batch fills (config/vllm.py)."""
    made = captured(seqs, tokens, 0, given=tuple(sizes))
    held = {size for size in sizes if size <= tokens}
    assert made.piecewise == len(held)
    assert made.full == len([size for size in held if size <= seqs])


def test_fewer_graphs_leave_more_for_the_cache() -> None:
    plain, few = (
        kvplan.size(
            "qwen3-8b", engine="vllm@0.30", gpu="h100", settings={"cudagraph_capture_sizes": sizes}
        ).pool
        for sizes in (None, "1,2,4,8")
    )
    assert plain is not None
    assert few is not None
    assert few.bytes > plain.bytes


def test_a_log_says_them() -> None:
    log = (
        "(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:300] vLLM API server version 0.30.0\n"
        "(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-0.6B',"
        " 'cudagraph_capture_sizes': [1, 2, 4]}\n"
        "(EngineCore pid=2) INFO 10-01 10:00:20 [gpu_worker.py:440] Available KV cache memory: 17.20 GiB\n"
    )
    found = kvplan.compare(log=[log.encode()], gpu="l4")
    assert found.recognised["cudagraph_capture_sizes"] == "(1, 2, 4) (args, line 2)"
