"""The process of an installed engine: what it says is heard, whatever goes wrong becomes one clear error."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import CannotRunHere
from kvplan.proof.validate.installed.messages import hello_of, measured_of, parse_line
from kvplan.proof.validate.installed.process import START, EngineProcess, TimeUp
from tests.proof.fake_engine import interpreter

pytestmark = pytest.mark.skipif(os.name != "posix", reason="engines run on Linux")
HELLO = {"version": "0.32.0", "torch": "2.13", "python": "3.11", "device": "cpu", "kind": "cpu"}
SAYS: dict[str, Any] = {
    "hello": HELLO,
    "measured": [
        ["settings", {"block_size": 16}],
        ["available", [1000]],
        ["cache", {"num_blocks": 10, "groups": []}],
        ["workers", [{"cache_bytes": 1000}]],
    ],
    "requests": {"admitted": 3, "refused": True, "free_before": 9, "free_after": 9},
}


def child(folder: Path, **more: Any) -> EngineProcess:
    how = {
        name: more.pop(name)
        for name in ("stop", "start_seconds", "silent_seconds", "on_stage")
        if name in more
    }
    return EngineProcess([str(interpreter(folder, {**SAYS, **more}))], folder / "log", **how)


def test_what_is_measured_is_heard_with_noise_around_it(tmp_path: Path) -> None:
    stages: list[str] = []
    with child(tmp_path, print='{"half": a line', on_stage=stages.append, **{"in": "read"}) as run:
        assert run.greet().version == "0.32.0"
        found = run.ask({"words": []}, lambda so_far: {"tokens": 5 * (so_far.num_blocks or 0), "most": 4})
    assert found.available == (1000,)
    assert found.requests == {"tokens": 50, "admitted": 3, "refused": True, "free_before": 9, "free_after": 9}
    assert found.failure is None
    assert stages[0] == "import"
    assert stages[-1] == "admit"
    assert "half" in (tmp_path / "log").read_text()  # what is printed stands in the log


def test_no_answer_ends_the_admission_and_nothing_else(tmp_path: Path) -> None:
    with child(tmp_path) as run:
        run.greet()
        found = run.ask({"words": []}, lambda _: None)
    assert found.requests == {}
    assert found.num_blocks == 10


def test_an_error_of_the_engine_is_told_with_its_stage_and_what_was_measured(tmp_path: Path) -> None:
    with child(tmp_path, **{"in": "get_kv_cache_configs", "raise": ["ValueError", "no blocks\nmore"]}) as run:
        run.greet()
        found = run.ask({})
    assert found.failure is not None
    assert (found.failure.stage, found.failure.type) == ("get_kv_cache_configs", "ValueError")
    assert any("ValueError: no blocks" in line for line in found.failure.traceback)
    assert found.available == (1000,)
    assert not found.failure.out_of_memory


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"signal": signal.SIGKILL}, "by SIGKILL in the stage `read`"),
        ({"signal": signal.SIGSEGV}, "by SIGSEGV"),
        ({"exit": 7}, "with exit code 7"),
    ],
)
def test_a_crash_is_said_with_its_stage_and_the_log(how: dict[str, int], said: str, tmp_path: Path) -> None:
    with child(tmp_path, **{"in": "read", "print": "the last words"}, **how) as run:
        run.greet()
        with pytest.raises(CannotRunHere, match=said) as raised:
            run.ask({})
    assert raised.value.code == "engine-crashed"
    assert "the last words" in raised.value.detail


def test_silence_ends_the_process(tmp_path: Path) -> None:
    with child(tmp_path, silent_seconds=0.3, sleep=600, **{"in": "load_model"}) as run:
        run.greet()
        with pytest.raises(CannotRunHere, match="said nothing for 0 s in the stage `load_model`") as raised:
            run.ask({})
    assert raised.value.code == "engine-silent"


def test_the_time_limit_keeps_what_was_said(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    run = child(
        tmp_path,
        sleep=600,
        stop=lambda: any(one["event"] == "measured" for one in events),
        **{"in": "get_kv_cache_configs"},
    )
    run.events = events
    with run:
        run.greet()
        with pytest.raises(TimeUp):
            run.ask({})
        assert run.measured().settings == {"block_size": 16}


def test_processes_of_the_engine_end_with_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with child(tmp_path, child=str(told), sleep=600, silent_seconds=1.5, **{"in": "load_model"}) as run:
        run.greet()
        with pytest.raises(CannotRunHere):
            run.ask({})
        pid = int(told.read_text())
        os.kill(pid, 0)  # it lives
    for _ in range(100):
        if _gone(pid):
            return
        time.sleep(0.05)
    pytest.fail("a process of the engine outlived it")


def _gone(pid: int) -> bool:
    """Ended, or a zombie that its new parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotRunHere, match="does not start") as raised:
        EngineProcess([str(tmp_path / "none")], tmp_path / "log").__enter__()
    assert raised.value.code == "no-engine"


def test_an_engine_that_is_not_installed_is_said_by_the_real_script(tmp_path: Path) -> None:
    """start.py itself, in an interpreter that knows nothing of kvplan and has no such engine."""
    with (
        EngineProcess([sys.executable, "-I", str(START), "no_such_engine"], tmp_path / "log") as run,
        pytest.raises(CannotRunHere, match="no_such_engine cannot be imported") as raised,
    ):
        run.greet()
    assert "--engine-python" in raised.value.help[0]


@pytest.mark.parametrize(
    "line", [b"", b"INFO 11-23 start", b"{", b"[1]", b'{"no": "event"}', b'{"event": 3}', b"\xff{"]
)
def test_a_line_that_is_no_event_is_none(line: bytes) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize(
    "event",
    [{"event": "hello"}, {**HELLO, "event": "hello", "nvml_total": "much"}],
)
def test_a_malformed_greeting_is_one_error(event: dict[str, Any]) -> None:
    with pytest.raises(CannotRunHere, match="cannot be read"):
        hello_of(event)


@pytest.mark.parametrize(
    ("of", "values"),
    [
        ("available", ["x"]),
        ("cache", {"num_blocks": 1, "groups": [{"kind": "a"}]}),
        ("workers", [3]),
        ("settings", 3),
    ],
)
def test_a_malformed_measurement_is_one_error(of: str, values: object) -> None:
    hello = hello_of({**HELLO, "event": "hello"})
    with pytest.raises(CannotRunHere, match="cannot be read"):
        measured_of(hello, [{"event": "measured", "of": of, "values": values}])
