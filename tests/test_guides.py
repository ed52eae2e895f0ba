"""Numbers that popular guides print, recomputed from the cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.files.yaml.strict import load_yaml_file
from scripts.make_docs import guide_answer

CLAIMS: list[dict[str, Any]] = load_yaml_file(
    Path(__file__).resolve().parents[1] / "examples" / "popular_guides.yaml"
).data["claims"]


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim["what"] for claim in CLAIMS])
def test_claim(claim: dict[str, Any]) -> None:
    assert guide_answer(claim) == claim["bytes"]


def test_the_70b_figure_in_the_guides_unit() -> None:
    """85.9 GB: 8,192 tokens × 32 requests of Llama-3.1-70B."""
    total = kvplan.size("llama-3.1-70b", engine="generic", tokens=8192, requests=32).total.kv_bytes
    assert round(total / 10**9, 1) == 85.9
