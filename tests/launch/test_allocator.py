"""PYTORCH_CUDA_ALLOC_CONF of a command: whether torch's allocator rounds weights up to segments."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api.launching import started_readings
from kvplan.units import MIB

SERVE = "vllm serve Qwen/Qwen3-32B-AWQ --max-model-len 8192"


def beside(text: str) -> int:
    """What lies beside the weights on a 3090 at least, bytes."""
    (reading,) = started_readings(text, "rtx-3090-24gb")
    assert reading.plan is not None
    budget = kvplan.size(reading.plan).budget
    assert budget is not None
    return {line.name: line.low_bytes for line in budget.lines}.get("beside the weights", 0)


@pytest.mark.parametrize(
    ("variables", "pages"),
    [
        ("", False),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", True),
        ("PYTORCH_ALLOC_CONF=expandable_segments:True", True),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:true", True),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", False),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", False),
    ],
)
def test_expandable_segments_are_read(variables: str, pages: bool) -> None:
    """64 layers with 3.5 MiB of steps each, or none of it."""
    found = beside(f"{variables} {SERVE}".strip())
    assert found < 10 * MIB if pages else 200 * MIB < found < 240 * MIB
