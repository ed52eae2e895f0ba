"""What was alive at the peak of a start, by the allocator's own record."""

from __future__ import annotations

from typing import Any

from tests.gpu.allocations import place, replay


def event(action: str, address: int, size: int, name: str = "made") -> dict[str, Any]:
    frames = [
        {"filename": "/x/torch/cuda/memory.py", "line": 1, "name": "inner"},
        {"filename": f"/machine/folder/{name}.py", "line": 7, "name": name},
    ]
    return {"action": action, "addr": address, "size": size, "frames": frames}


EVENTS = [
    event("alloc", 1, 100, "weights"),
    event("alloc", 2, 40, "table"),
    event("free_requested", 2, 40),
    event("free_completed", 2, 40),
    event("alloc", 2, 30, "kept"),
    event("segment_alloc", 9, 2_000),
    event("alloc", 3, 25, "logits"),
    event("alloc", 4, 25, "logits"),
    event("free_requested", 3, 25),
    event("free_requested", 4, 25),
    event("free_requested", 5, 7),
]


def test_the_peak_is_beyond_what_was_there_before() -> None:
    found = replay(EVENTS, 1, len(EVENTS))
    assert (found.start, found.over, found.end) == (100, 80, 130)
    assert [(row["bytes"], row["at"]) for row in found.at_peak] == [
        (50, "logits.py:7 logits"), (30, "kept.py:7 kept"),
    ]  # fmt: skip
    assert found.at_peak[0]["sizes"] == [(25, 2)]
    assert [row["at"] for row in found.left] == ["kept.py:7 kept"]


def test_what_is_there_before_is_in_no_group() -> None:
    assert replay(EVENTS, 5, 5).at_peak == []
    assert replay(EVENTS, 0, 1).at_peak[0]["bytes"] == 100


def test_places_name_no_folder() -> None:
    assert "machine" not in place(EVENTS[0]["frames"])
