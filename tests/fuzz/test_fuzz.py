"""A sample of ``make fuzz``, everything that it ever found, and that it would find a fault."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError
from tests.fuzz import watch
from tests.fuzz.run import SEED, elsewhere, one, run, several
from tests.fuzz.targets import TARGETS
from tests.fuzz.watch import FaultError, asked, bounded, command, silent

SAMPLE = 900
FOUND = [
    line.split("#")[0].strip() for line in (Path(__file__).parent / "found.txt").read_text().splitlines()
]


def test_a_sample() -> None:
    found = run(SAMPLE, seed=SEED)
    assert found == [], "\n".join(entry.input + "\n" + entry.text for entry in found[:3])


@pytest.mark.parametrize("line", [line for line in FOUND if line])
def test_what_was_found_once(line: str) -> None:
    target, seed, number = line.split(":")
    with elsewhere() as folder:
        one(target, int(seed), int(number), folder)


def test_the_same_number_is_the_same_input(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    monkeypatch.setitem(TARGETS, "types", (lambda random: drawn.append(random.random()), 1))
    assert several(("types", SEED, range(3))) == several(("types", SEED, range(3))) == []
    assert drawn[:3] == drawn[3:]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_fault_is_found_and_named(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setitem(TARGETS, target, (lambda *_: 1 // 0, 1))
    (found,) = several((target, SEED, range(1)))
    assert found.input == f"{target}:{SEED}:0"
    assert found.kind.startswith("ZeroDivisionError")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the timers of a Unix")
def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CPU_SECONDS", 0.05)

    def endless() -> None:
        while True:
            pass

    with pytest.raises(FaultError, match="CPU time"), bounded():
        endless()


def test_memory_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = iter((0, 2 << 30, 2 << 30))
    monkeypatch.setattr(watch, "peak", lambda: next(amounts))
    with pytest.raises(FaultError, match="2048 MiB"), bounded():
        pass


@pytest.mark.parametrize("text", ["\x1b[2J", "\x00", "\x9b", "\u202e", "\r"])
def test_what_a_terminal_obeys_is_a_fault(text: str) -> None:
    with pytest.raises(FaultError, match="reaches the terminal"):
        silent(f"a{text}b")
    silent("a\n\tb é 🙂 \x1b[31;1merror\x1b[0m")


@pytest.mark.parametrize(("error", "expected"), [(KvplanError("a", "b"), None), (TypeError("x"), TypeError)])
def test_only_a_kvplan_error_is_an_answer(error: Exception, expected: Any) -> None:
    def call() -> None:
        raise error

    if expected is None:
        assert asked(call) is None
    else:
        with pytest.raises(expected):
            asked(call)


def prints(text: str, code: int) -> Callable[[list[str]], int]:
    def main(_: list[str]) -> int:
        sys.stdout.write(text)
        return code

    return main


@pytest.mark.parametrize(
    ("text", "code"), [("", 70), ("", 1 << 8), ("Traceback (most recent call last)", 0), ("\x07", 0)]
)
def test_a_command_that_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch, text: str, code: int) -> None:
    before = sys.stdout
    monkeypatch.setattr("kvplan.cli.main", prints(text, code))
    with pytest.raises(FaultError):
        command(["size"])
    assert sys.stdout is before
    monkeypatch.setattr("kvplan.cli.main", prints("fine", 0))
    assert command(["size"]) == (0, "fine")
    assert isinstance(sys.stdin, io.TextIOBase) or sys.stdin is not None
