"""An installed llama-cpp-python 0.3.36, asked again what is recorded: a few models of each kind."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.engines.llamacpp_cases import cases
from tests.recorded import DATA, record

pytestmark = pytest.mark.llamacpp
PROGRAM = DATA.parent / "engines" / "llamacpp_ask.py"
STEP = 6
"""Every so many recorded answers are asked again."""


def test_asked_again(python: str) -> None:
    known: dict[str, Any] = record("llamacpp")
    listed = list(cases(known["keys"]))[::STEP]
    lines = "\n".join(json.dumps(case) for case in listed) + "\n"
    done = subprocess.run([python, str(PROGRAM)], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {answer.pop("name"): answer for answer in answers} == {
        case["name"]: known["answers"][case["name"]] for case in listed
    }
