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
    "api": Room(6150, "one vocabulary, explain and a table of sizes, a search of the hub, headroom"),
    "architectures": Room(16700, "looped layers, Lara, Hy 4 with images; weights by the hub's headers"),
    "checking": Room(2250, "targets of TTFT and TPOT (times.py), two servers on one GPU, attached servers"),
    "cli": Room(7000, "words for MLX, --search, a cold start that reads less"),
    "comparison": Room(2250, "figures of ollama show"),
    "deployment": Room(1950, "the ranks of the fewest GPUs; what one change buys, headroom"),
    "engines": Room(3200, "options that a program does not take, in what helps"),
    "engines/budget": Room(1200, "totals that owners set are an interval"),
    "engines/llamacpp": Room(6100, "layers dealt as a whole; how long a slot is"),
    "engines/mlx": Room(1400, "rows after any number of steps"),
    "engines/observed": Room(1700, "lines of connectors and of ROCm"),
    "engines/sglang": Room(5700, "ranks of data-parallel attention in the simulator"),
    "engines/tensors": Room(650, "as it was when rooms were first counted"),
    "engines/tgi": Room(750, "as it was when rooms were first counted"),
    "engines/transformers": Room(1500, "a gate that is kept apart"),
    "engines/trtllm": Room(1950, "as it was when rooms were first counted"),
    "engines/vllm": Room(15700, "steps that one prompt takes whole"),
    "families": Room(1150, "as it was when rooms were first counted"),
    "files": Room(1800, "packaged files in a narrow form"),
    "files/cards": Room(3600, "names found in the text of the index"),
    "files/gguf": Room(550, "ollama show and /api/show as models"),
    "files/gpus": Room(1150, "names found in the text of the index"),
    "files/hub": Room(1300, "headers of safetensors by a pinned revision, a search"),
    "files/launch": Room(9500, "scripts of mlx_lm"),
    "files/logs": Room(450, "ollama show, lms ps"),
    "files/plans": Room(2100, "price files, locks, facts of receipts that are bound"),
    "files/servers": Room(300, "a connector's settings"),
    "files/traces": Room(1000, "as it was when rooms were first counted"),
    "files/yaml": Room(1200, "the narrow form of packaged files is read without PyYAML"),
    "kvplan": Room(3050, "named tuples without exec"),
    "planning": Room(5750, "why a request is never admitted"),
    "plans": Room(1950, "a switch of three states; plans on one fleet, locks, bound receipts"),
    "proof": Room(9550, "a keeper of engines' processes, GPUs that others use, servers that run already"),
    "report": Room(10100, "what waits for host memory, in plan and of a mix; load and queue over time"),
    "simulation": Room(14450, "points over time of every run"),
    "weights": Room(2250, "weights between two ends, kernels that keep experts which are not quantised"),
}
CORE = 122400
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
