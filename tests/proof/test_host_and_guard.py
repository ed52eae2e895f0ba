"""Host memory as the system tells it, and what may end a run early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvplan.proof.validate import host
from kvplan.proof.validate.guard import Guard, Terminated


def test_free_memory_is_what_linux_calls_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n", encoding="ascii")
    monkeypatch.setattr(host, "_LIMITS", ())
    assert host.free_bytes(meminfo) == 600 * 1024
    assert host.total_bytes(meminfo) == 1000 * 1024


def test_a_control_group_may_leave_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo, most, now = tmp_path / "meminfo", tmp_path / "max", tmp_path / "current"
    meminfo.write_text("MemAvailable:    600 kB\n", encoding="ascii")
    monkeypatch.setattr(host, "_LIMITS", ((most, now),))
    most.write_text("max\n", encoding="ascii")
    now.write_text("100\n", encoding="ascii")
    assert host.free_bytes(meminfo) == 600 * 1024
    most.write_text("5100\n", encoding="ascii")
    assert host.free_bytes(meminfo) == 5000
    most.write_text("50\n", encoding="ascii")
    assert host.free_bytes(meminfo) == 0


def test_other_systems_have_a_figure_or_none(tmp_path: Path) -> None:
    found = host.free_bytes(tmp_path / "none")
    assert found is None or found > 0
    assert host.resident_bytes(tmp_path / "none") is None or host.resident_bytes(tmp_path / "none") > 0  # type: ignore[operator]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_peak_is_at_least_what_is_there_now() -> None:
    now, peak = host.resident_bytes(), host.peak_resident_bytes()
    assert now is not None
    assert peak is not None
    assert 0 < now <= peak


def test_time_is_up_after_the_limit() -> None:
    moments = iter([0.0, 4.9, 5.1, 99.0])
    guard = Guard(5, clock=lambda: next(moments))
    assert [guard.stop(), guard.stop()] == [False, True]
    assert not Guard(None, clock=lambda: 1e9).stop()


def test_sigterm_unwinds_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    released = []

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(10**7):
                pass
        finally:
            released.append(True)

    with pytest.raises(Terminated), Guard():
        work()
    assert released == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_rank_ends_when_its_launcher_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvplan.proof.validate import guard as module

    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    guard = Guard(ranked=True)
    guard._parent = -1
    with pytest.raises(Terminated), guard:
        guard._done.wait(10)


@pytest.mark.parametrize(("limit", "number", "code"), [("None", signal.SIGTERM, 143), ("0.1", None, 3)])
def test_a_rank_that_waits_where_no_handler_runs_is_ended(
    limit: str, number: signal.Signals | None, code: int
) -> None:
    """As in a collective of torch.distributed that nobody answers: the call is C's own, for minutes."""
    program = (
        "import hashlib\n"
        "from kvplan.proof.validate import guard\n"
        "guard._GRACE_SECONDS = guard._LOOK_SECONDS = 0.2\n"
        f"with guard.Guard({limit}, ranked=True):\n"
        "    print('waits', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"waits\n"
        if number is not None:
            time.sleep(0.5)  # until it waits
            rank.send_signal(number)
        assert rank.wait(20) == code
