"""A cold answer, and an installation's room, beside the three fastest programs of the kind in the index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cold import KVPLAN, ON_A_GPU, ROOT, cold, environment
from bench.figures import Figure

FOLDER = "KVPLAN_PEERS"
"""Environment variable with the folder of the peers' commands (the bin of an environment of their own), where
they are not on PATH: ``python -m venv peers && peers/bin/pip install ridgepoint kvfit llmfit``."""
PEERS = {
    "ridgepoint": ("fit", "llama-3-70b", "--gpu", "h200-141gb:2", "--ctx", "32768"),
    "kvfit": ("Qwen/Qwen3-32B", "--hardware", "h200", "--context", "32768"),
    "llmfit": ("--memory", "141G", "concurrency", "Qwen/Qwen3-32B", "--context", "32768"),
}
"""The nearest question that each takes; kvfit reads the model from the hub."""
MOST_WHEEL, MOST_INSTALLED = 3_000_000, 25_000_000
_ROOM = """
import importlib.metadata, os, sys
files = importlib.metadata.files(sys.argv[1]) or ()
print(sum(os.path.getsize(file.locate()) for file in files if os.path.isfile(file.locate())))
"""


def _command(name: str) -> str | None:
    folder = os.environ.get(FOLDER)
    return shutil.which(name, path=folder) if folder else shutil.which(name)


def _fails(command: list[str]) -> str | None:
    """Why a command gives no answer here, in its own words; None where it does."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "no answer in two minutes"
    said = (done.stderr or done.stdout).strip().splitlines()
    return None if done.returncode == 0 else f"exit {done.returncode}: {said[-1] if said else 'no word'}"


def cold_beside_peers(turns: int) -> tuple[list[Figure], list[str]]:
    """(a figure for each peer that answers here, why the others are left out)."""
    figures, skipped = [], []
    for name, words in PEERS.items():
        path = _command(name)
        if path is None:
            skipped.append(f"{name} (not on PATH, nor in the folder that {FOLDER} names)")
            continue
        command = [path, *words]
        if (why := _fails(command)) is not None:
            skipped.append(f"{name} ({why})")
            continue
        ours, theirs = cold([*KVPLAN, *ON_A_GPU], command, turns)
        detail = f"{ours * 1000:.0f} ms of processor time against {theirs * 1000:.0f} ms"
        room = _room_of(Path(path), name)
        detail += f"; {name} takes {room / 1e6:.1f} MB" if room else ""
        figures.append(
            Figure(f"kvplan {' '.join(ON_A_GPU)}, cold", f"{name} {words[0]}", ours / theirs, "≤ 1", detail)
        )
    return figures, skipped


def _room_of(command: Path, name: str) -> int:
    """Bytes of a distribution's files, where its interpreter lies beside its command; 0: not known."""
    python = command.parent / "python"
    done = subprocess.run([python, "-c", _ROOM, name], capture_output=True, text=True, check=False)
    return int(done.stdout or 0) if done.returncode == 0 else 0


def room() -> tuple[list[Figure], list[str]]:
    """The wheel's size and the installation's, without its dependencies."""
    with TemporaryDirectory(prefix="kvplan-room-") as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        built = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
        if (why := _fails(built)) is not None:
            return [], [f"the wheel's size (pip wheel: {why})"]
        wheel = next(folder.glob("*.whl"))
        target = folder / "installed"
        command = [*pip, "install", "--no-deps", "--target", str(target), str(wheel)]
        kept = {name: value for name, value in environment().items() if name != "PYTHONPYCACHEPREFIX"}
        subprocess.run(command, check=True, env=kept)
        installed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        return [
            _part("the wheel", wheel.stat().st_size, MOST_WHEEL),
            _part("kvplan installed, compiled, without its dependencies", installed, MOST_INSTALLED),
        ], []


def _part(what: str, size: int, most: int) -> Figure:
    return Figure(what, f"{most / 1e6:.0f} MB", size / most, "≤ 1", f"{size / 1e6:.2f} MB")
