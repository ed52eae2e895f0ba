"""``kvplan plan``: traces of any columns, files elsewhere, rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

TRACE = "prompt_tokens,completion_tokens\n100,20\n3000,50\n3000,20\n"


def test_a_trace_of_any_columns_is_planned_written_and_checked(run: Run, tmp_path: Path) -> None:
    """The plan lies in another folder than the trace: its path is meant from there."""
    trace, file = tmp_path / "load.csv", tmp_path / "plans" / "chat.yaml"
    trace.write_text(TRACE, encoding="utf-8")
    file.parent.mkdir()
    asked = ("plan", "llama-3.1-8b", "-n", "10", "--gpu", "h100", "--workload", str(trace))
    assert "is none of the traces" in run(*asked).err
    named = (*asked, "--trace-columns", "prompt_tokens,completion_tokens", "--write", str(file))
    assert run(*named).code == 0
    assert "trace_columns: {input: prompt_tokens, output: completion_tokens}" in file.read_text("utf-8")
    assert run("check", str(file)).code == 0
    again = run("plan", "llama-3.1-8b", "-n", "10", "--gpu", "h100", "--workload", str(file), "--json")
    assert again.code == 0
    assert "is no" not in again.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--arrival", "3"), "bad-rate"),
        (("--arrival", "0/s"), "bad-rate"),
        (("--arrival", "3/s"), "bad-usage"),
        (("--trace-columns", "one"), "bad-usage"),
        (("--shared-prefix", "8k"), "bad-setting"),
        (("--host-memory", "256"), "bad-size"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Run, words: tuple[str, ...], code: str) -> None:
    ran = run("plan", "llama-3.1-8b", "-t", "4k", "--gpu", "h100", *words)
    assert ran.code == 2
    assert f"error[{code}]" in ran.err


def test_arrivals_a_minute_are_arrivals_a_second(run: Run) -> None:
    asked = ("plan", "llama-3.1-8b", "-t", "4k", "--gpu", "h100", "--ttft", "2s", "--tpot", "50ms")
    assert "60 requests" not in run(*asked).out
    a_minute, a_second = run(*asked, "--arrival", "120/min"), run(*asked, "--arrival", "2/s")
    assert a_minute.code == a_second.code == 0
    assert a_minute.out.splitlines()[0] == a_second.out.splitlines()[0]
