"""An installed SGLang 0.5.23, asked again what is recorded: a few models of each kind (make sglang)."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scripts.record_sglang import is_planned
from tests.engines.sglang_cases import cases
from tests.recorded import record

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed (make sglang)"),
]
PROGRAM = Path(__file__).with_name("sglang_ask.py")
STEP = 6
"""Every so many recorded answers are asked again."""


@pytest.mark.parametrize("gpus", [("h100", "h200"), ("a100",), ("l40s", "l4"), ("b200",)])
def test_asked_again(gpus: tuple[str, ...]) -> None:
    """The same figures and refusals, whichever process asks."""
    known: dict[str, Any] = record("sglang")["answers"]
    listed = [case for case in cases() if case["gpu"] in gpus and case["name"] in known][::STEP]
    lines = "\n".join(json.dumps(case) for case in listed) + "\n"
    command = [sys.executable, str(PROGRAM), listed[0]["gpu"]]
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    names = [case["name"] for case in listed]
    # A card that was shortened since stops in its class, not in the planner.
    found = {name: said for name, said in zip(names, answers, strict=True) if is_planned(said)}
    assert len(found) > 0.97 * len(names)
    assert found == {name: known[name] for name in found}
