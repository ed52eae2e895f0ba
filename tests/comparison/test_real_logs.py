"""Whole logs of real servers, where they lie beside the checkout: every known model is compared, every figure
is predicted or explained, and no line of theirs, however bent, is a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.api import compare
from kvplan.errors import KvplanError

LOGS = Path(__file__).resolve().parents[3] / "shared" / "logs"
FILES = sorted(LOGS.glob("*.log"))
pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not FILES, reason="the logs of real servers are not beside the checkout"),
]
NO_CARD = ("sparkbench-nemo-nano4b", "sparklocal-q38-27b-int4")
"""Of models that no card describes: NVIDIA-Nemotron-3-Nano-4B, Qwen3.8-27B."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_every_known_model_is_compared(path: Path) -> None:
    if path.stem in NO_CARD:
        with pytest.raises(KvplanError, match="which no card describes"):
            compare(log=path)
        return
    found = compare(log=path)
    assert any(row.predicted is not None for row in found.rows)
    assert not [row.name for row in found.rows if row.predicted is None and not row.explanation]
