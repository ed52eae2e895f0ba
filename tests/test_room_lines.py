"""Lines of each room of the package: a room that grows says why, here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "kvplan"
SPLIT = ("engines", "files")
"""Folders whose own folders are rooms."""
WINGS = ("proof", "simulation")
SLACK = 150
"""Lines below its number at which a room must lower it."""


class Room(NamedTuple):
    lines: int
    because: str
    """Why it may have as many: raising the number takes a new reason."""


ROOMS: dict[str, Room] = {
    "api": Room(
        5600, "drafts at a rate, hours of a trace, what fits at a usable speed, lists of local programs"
    ),
    "architectures": Room(16650, "looped layers, Lara, Hy 4 with images; sizes stop at the door"),
    "checking": Room(2250, "targets of TTFT and TPOT (times.py), two servers on one GPU, attached servers"),
    "cli": Room(6950, "acceptance of plan, secrets kept while a command runs, tabs of the page, --hours"),
    "comparison": Room(2200, "figures of Ollama and LM Studio"),
    "deployment": Room(1800, "what one change buys, a lone user's ways"),
    "engines": Room(3150, "builds by their least bits, how fast a lone user's tokens come"),
    "engines/budget": Room(1200, "totals that owners set are an interval"),
    "engines/llamacpp": Room(
        5500, "reads and speed of one request, encoders of images, figures of its programs"
    ),
    "engines/observed": Room(1700, "lines of connectors and of ROCm"),
    "engines/sglang": Room(5700, "ranks of data-parallel attention in the simulator"),
    "engines/tensors": Room(650, "as it was when rooms were first counted"),
    "engines/tgi": Room(750, "as it was when rooms were first counted"),
    "engines/transformers": Room(1500, "a gate that is kept apart"),
    "engines/trtllm": Room(1950, "as it was when rooms were first counted"),
    "engines/vllm": Room(15550, "ranks and pipelines in the simulator, Dynamo's images"),
    "families": Room(1150, "as it was when rooms were first counted"),
    "files": Room(1700, "the rest of a Mac's or WSL's memory, machines in use"),
    "files/cards": Room(3550, "checkpoints compiled into one file"),
    "files/gguf": Room(450, "as it was when rooms were first counted"),
    "files/gpus": Room(1100, "power, memory that was seen free, announced ones"),
    "files/hub": Room(1150, "as it was when rooms were first counted"),
    "files/launch": Room(9450, "OLLAMA_* variables, Dynamo's releases, commands that need no grammar"),
    "files/logs": Room(250, "lists that Ollama and LM Studio print"),
    "files/plans": Room(2100, "price files, locks, facts of receipts that are bound"),
    "files/servers": Room(300, "a connector's settings"),
    "files/traces": Room(1000, "as it was when rooms were first counted"),
    "files/yaml": Room(900, "as it was when rooms were first counted"),
    "kvplan": Room(2800, "secrets of a file are masked at the door of output"),
    "planning": Room(5700, "drafts in the search, classes that cannot beat the best"),
    "plans": Room(1950, "a switch of three states; plans on one fleet, locks, bound receipts"),
    "proof": Room(9450, "a keeper of engines' processes, GPUs that others use, servers that run already"),
    "report": Room(9400, "what one change holds, ways at a desk, hours, Dynamo's object"),
    "simulation": Room(14350, "ranks that step together, pipelines, hours, runs that end once decided"),
    "weights": Room(2250, "weights between two ends, kernels that keep experts which are not quantised"),
}
CORE = 117500
"""Lines of all rooms but the wings. `size` for one engine needs some 62,000 of them."""


def _lines() -> Counter[str]:
    found: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        folders = file.relative_to(PACKAGE).parts[:-1]
        room = "/".join(folders[: 2 if folders and folders[0] in SPLIT else 1]) or "kvplan"
        found[room] += len(file.read_text(encoding="utf-8").splitlines())
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_grows_with_a_reason(room: str) -> None:
    """What it has, and hardly less: where a room became shorter, its number follows."""
    lines = _lines()[room]
    assert lines <= ROOMS[room].lines, f"{room} has {lines} lines: merge, or raise its number with a reason"
    assert lines >= ROOMS[room].lines - SLACK, f"{room} has {lines} lines: lower its number"
    assert ROOMS[room].because


def test_every_room_is_named() -> None:
    assert set(_lines()) == set(ROOMS)


def test_the_core_stays_small() -> None:
    assert sum(lines for room, lines in _lines().items() if room not in WINGS) <= CORE
