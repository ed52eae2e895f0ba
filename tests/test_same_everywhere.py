"""The same question has the same answer with and without the extras: byte for byte, and none is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.law_answers import questions

pytestmark = pytest.mark.laws
ROOT = Path(__file__).resolve().parent.parent
STEP = 1 if os.environ.get("KVPLAN_LAWS") == "all" else 29
"""Every so many questions are asked; KVPLAN_LAWS=all asks all. It shares no factor with the ten questions of
a card or the two of a config: every twelfth asked each engine of half the cards only, and the share of pools
moved with each card that was added."""


def _answers(*words: str) -> list[str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "tests.law_answers", str(STEP), "0", *words]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    return ran.stdout.splitlines()


def test_answers_do_not_depend_on_what_is_installed() -> None:
    if find_spec("torch") is None or find_spec("transformers") is None:
        pytest.skip("the extras hf and gpu are not installed: there is nothing to compare with")
    here, without = _answers(), _answers("blocked")
    assert json.loads(here[-1]) == json.loads(without[-1]) == {"imported": []}
    for mine, bare in zip(here, without, strict=True):
        assert mine == bare
    assert len(here) == len(range(0, len(questions()), STEP)) + 1
    pools = sum('"pool": {' in line for line in here)
    assert pools * 6 > len(here)  # a fifth of all of them
