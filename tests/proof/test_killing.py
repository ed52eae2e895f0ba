"""Killing a validation leaves nothing; a reduced form of ``python -m tests.proof.kill --times 50``."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kvplan.files.plans.receipts import read_receipt
from tests.proof.kill import ROOT, SIGNALS, arguments, kill_many

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
    pytest.mark.skipif(not SIGNALS, reason="there is no SIGKILL here"),
]


def test_nothing_is_left() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    found = kill_many(2, seed=5)
    assert found[0].code == 0
    assert found[0].receipt == "whole"
    assert [one for one in found if one.left] == []


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_says_where_it_stopped(number: int, code: int, word: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    command = [*arguments(tmp_path), "--kv-cache-memory", "1GiB", "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    torch = _wait_for_torch(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, (torch, err)
    assert err.startswith(f"error[{word}]: stopped during the stage `")
    where = f"everything was released, what was measured is in {tmp_path / 'receipt.json'}"
    assert where in " ".join(err.split())
    assert f'"code": "{word}"' in out
    kept = read_receipt(tmp_path / "receipt.json")
    assert kept.intact
    assert (kept.receipt.verdict, kept.receipt.stopped_by) == ("stopped", "signal")


def _wait_for_torch(pid: int) -> bool:
    """Until the pool is being made: the process has grown by more than torch itself takes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        resident = next((int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")), 0)
        if resident > 600 * 1024:
            return True
        time.sleep(0.02)
    return False
