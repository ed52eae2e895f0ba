"""Whole logs of real servers, where they lie beside the checkout: every known model is compared, every figure
is predicted or explained, and no line of theirs, however bent, is a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.api import compare
from kvplan.comparison import Verdict

LOGS = Path(__file__).resolve().parents[3] / "shared" / "logs"
FILES = sorted(LOGS.glob("*.log"))
WIDE = {
    *("mtix-sgl-dsv4-s128", "mtix-sgl-dsv4-s16", "sparklocal-laguna-int4-262k", "sparklocal-laguna-int4-65k"),
    *("sparklocal-laguna-nvfp4-65k", "sparklocal-sgl-laguna-int4"),
}
"""Their pools are off by more than the tolerance and inside the estimate's interval."""
pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not FILES, reason="the logs of real servers are not beside the checkout"),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_every_known_model_is_compared(path: Path) -> None:
    found = compare(log=path)
    assert any(row.predicted is not None for row in found.rows)
    assert not [row.name for row in found.rows if row.predicted is None and not row.explanation]
    assert found.verdict is (Verdict.INSIDE if path.stem in WIDE else Verdict.AGREES), found.reason
