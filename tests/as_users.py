"""Commands asked as users type them, inside the test process: the exit code and the JSON answer."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from kvplan.cli import main


def answer_of(*words: object) -> tuple[int, dict[str, Any]]:
    """(exit code, what ``kvplan WORDS --json`` answers); an error that is no JSON is under ``error``."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, words), "--json"])
    try:
        return code, json.loads(out.getvalue())
    except json.JSONDecodeError:
        return code, {"error": {"message": (out.getvalue() + err.getvalue())[:600]}}


def reason_of(answer: dict[str, Any]) -> str:
    """The sentence of a refusal or an error; "" where there is none."""
    said = answer.get("refusal") or answer.get("error") or {}
    return str(said.get("message", "")) if isinstance(said, dict) else str(said)
