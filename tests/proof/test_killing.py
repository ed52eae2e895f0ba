"""Killing a validation leaves nothing; a reduced form of ``python -m tests.proof.kill --times 50``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.errors import CannotRunHere
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.kept import FOLDER, kept_folder
from tests.proof.fake_engine import interpreter
from tests.proof.kill import ROOT, SERVER, SIGNALS, WORKER, arguments, kill_many
from tests.proof.test_engine_run import CONFIG, MEASURED, WORDS

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


@pytest.mark.parametrize("engine", [WORKER, SERVER])
def test_nothing_of_an_engine_is_left_whenever_it_is_killed(engine: str) -> None:
    found = kill_many(3, seed=7, engine=engine)
    assert found[0].code == 0
    assert found[0].receipt == "whole"
    assert sum(one.hit for one in found) == 3
    assert [one for one in found if one.left] == []


@pytest.mark.parametrize("how", ["limit", "interrupt"])
def test_a_rank_whose_others_never_come_ends(how: str, tmp_path: Path) -> None:
    """It waits inside torch.distributed, where no handler of Python's runs, for half an hour."""
    pytest.importorskip("torch.distributed", reason="torch is not installed")
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    limit = ["--time-limit", "1"] if how == "limit" else []
    rank = subprocess.Popen(
        [sys.executable, "-m", "kvplan.proof", "qwen3-0.6b", "--tp", "2", "--device", "cpu", *limit,
         "--output", str(tmp_path / "receipt.json")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2",
             "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    if how == "interrupt":
        _until(lambda: _listens(port), "the rank waits for the other")
        rank.send_signal(signal.SIGINT)
    begun = time.monotonic()
    try:
        assert rank.wait(60) in ((3,) if how == "limit" else (130, 143))
    finally:
        rank.kill()
    assert how == "limit" or time.monotonic() - begun < 15  # ten seconds' grace
    assert list(tmp_path.iterdir()) == []


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


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


@pytest.mark.parametrize(
    ("number", "serving"),
    [(number, serving) for number in SIGNALS for serving in (False, True)],
)
def test_nothing_of_an_engine_is_left(number: signal.Signals, serving: bool, tmp_path: Path) -> None:
    """The engine's process, what it started, a server that ignores SIGTERM, the folder of both: whatever ends
    kvplan, within the ten seconds that a cancelled job has."""
    alive, temporary = tmp_path / "alive", tmp_path / "tmp"
    temporary.mkdir()
    holds = (
        {"hold": str(alive), "deaf": True}
        if serving
        else {"in": "load_model", "child": str(alive), "sleep": 600}
    )
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    python = str(interpreter(tmp_path, {**MEASURED, **holds}))
    words = [*WORDS, "--engine-python", python, *(["--serve"] if serving else [])]
    kvplan = subprocess.Popen(
        [sys.executable, "-m", "kvplan", "validate", str(tmp_path), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _until(alive.exists, "the engine runs")
    engine = Path("/proc") / str(int(alive.read_text()))
    kvplan.send_signal(number)
    kvplan.wait(10)
    _until(lambda: not engine.exists() or " Z " in (engine / "stat").read_text(), "the engine has ended")
    _until(lambda: not list(temporary.iterdir()), "its folder is removed")


@pytest.mark.parametrize("serving", [False, True])
def test_the_time_limit_ends_an_engine_that_says_nothing(serving: bool, tmp_path: Path) -> None:
    """While its worker loads, and while its server holds every request."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    holds = {"hold": str(tmp_path / "alive")} if serving else {"in": "load_model", "sleep": 600}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    python = str(interpreter(tmp_path, {**MEASURED, **holds}))
    words = [*WORDS, "--engine-python", python, "--time-limit", "8" if serving else "2"]
    words += ["--serve"] if serving else []
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", "validate", str(tmp_path), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    assert ("time was up" in " ".join(done.stderr.split())) is serving
    assert serving or "Stopped" in done.stdout
    assert time.monotonic() - begun < 60
    assert list(temporary.iterdir()) == []


def _until(holds: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        with contextlib.suppress(OSError):  # a process that ends while it is looked at
            if holds():
                return
        time.sleep(0.05)
    pytest.fail(f"not within 30 s: {what}")


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


@pytest.mark.parametrize("moment", ["at once", "within", "while something is written there"])
def test_a_killed_run_s_folder_goes_whatever_runs_beside_it(moment: str, tmp_path: Path) -> None:
    """Also where no engine runs at that moment: before its start, and between the worker and the server."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    within = {
        "at once": "os.kill(os.getpid(), 9)",
        "within": "(place / 'model').mkdir(); print(flush=True); time.sleep(60)",
        "while something is written there": "subprocess.Popen([sys.executable, '-c', WRITES, str(place)]);"
        " print(flush=True); time.sleep(60)",
    }[moment]
    writes = (
        "import itertools, pathlib, sys, time\n"
        "ends = time.monotonic() + 2\n"
        "for number in itertools.count():\n"
        "    if time.monotonic() > ends: break\n"
        "    try: (pathlib.Path(sys.argv[1]) / str(number)).touch()\n"
        "    except OSError: pass\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess, sys, time\nWRITES = {writes!r}\n"
         "from kvplan.proof.validate.installed.kept import kept_folder\n"
         f"with kept_folder('kvplan-engine-') as place: {within}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}, stdout=subprocess.PIPE,
    )  # fmt: skip
    with run:
        assert run.stdout is not None
        if moment != "at once":
            run.stdout.readline()
            assert list(temporary.iterdir()) != []
            run.kill()
    _until(lambda: not list(temporary.iterdir()), "its folder is removed")


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.proof.validate.installed.kept.FOLDER", tmp_path / "not_there.py")
    with pytest.raises(CannotRunHere, match="no temporary folder can be made"), kept_folder("kvplan-engine-"):
        pass


def test_a_folder_goes_where_nobody_reads_its_name_any_more(tmp_path: Path) -> None:
    """kvplan was killed while its folder's keeper began: nobody reads the name, and the pipe has ended."""
    life, mine = os.pipe()
    name, unread = os.pipe()
    os.close(name)
    os.close(mine)
    keeper = subprocess.Popen(
        [sys.executable, str(FOLDER), str(life), "kvplan-engine-"], pass_fds=(life,), stdout=unread,
        stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    os.close(life)
    os.close(unread)
    keeper.wait(60)
    assert list(tmp_path.iterdir()) == []
