"""Starts that people published, asked as they would ask, without what their logs print.

A row is right where the outcome is (a server that started is not refused, one that stopped is) and the pool
that was printed lies in the interval. Rows that are not right are named with the reason, and a test fails
when one of them becomes right.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from kvplan.units import GIB
from tests.as_users import answer_of, reason_of
from tests.laws.sampling import some
from tests.recorded import BESIDE

FILE = BESIDE / "data" / "field_reports_3.yaml"
ROWS: dict[str, dict[str, Any]] = (
    {row["id"].partition("-")[0]: row for row in yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader)}
    if FILE.is_file()
    else {}
)
AS_GIVEN = "(flags as given)"
MISSES: dict[str, str] = {}

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not ROWS, reason="the collection of public starts is not beside this checkout"),
]


def words_of(row: dict[str, Any]) -> list[str]:
    """The command line of a row: some say "as" another row, or "as given" of the server's own flags."""
    command = row["command"]
    if (as_other := re.match(r"kvplan \(as (v\d+\w*)([^)]*)\)(.*)", command)) is not None:
        words, changes = words_of(ROWS[as_other[1]]), shlex.split(as_other[3])
        if "without" in as_other[2]:
            words.remove(as_other[2].split()[-1])
        for flag, value in zip(changes[::2], changes[1::2], strict=True):
            if flag in words:
                del words[words.index(flag) : words.index(flag) + 2]
            words += [flag, value]
        return words
    words = shlex.split(command.replace(AS_GIVEN, ""))[1:]
    return words + _given(row) if AS_GIVEN in command else words


def _given(row: dict[str, Any]) -> list[str]:
    """The server's flags of a row, in kvplan's words."""
    flags = re.sub(r"\([^)]*\)", "", row["flags"])
    if (as_other := re.match(r"as (v\d+\w*)", flags)) is not None:
        return _given(ROWS[as_other[1]])
    words = ["--kv-unified" if word == "unified" else word for word in shlex.split(flags)]
    return ["eagle:3" if word == "EAGLE" else word for word in words]


def is_right(row: dict[str, Any]) -> tuple[bool, str]:
    """Whether the answer has the outcome and the pool of the row, and what was answered."""
    code, answer = answer_of(*words_of(row))
    budget, printed = answer.get("budget") or {}, row.get("pool_gib")
    low, high = budget.get("kv_pool_low_bytes"), budget.get("kv_pool_high_bytes")
    stops = re.match("refused|fails", row["printed"]) is not None
    outcome = code == 1 if stops else code == 0 or answer.get("verdict") == "unlikely"
    said_pool = printed is not None and "--kv-cache-memory" not in row["command"]
    inside = not said_pool or (low is not None and low - GIB / 200 <= printed * GIB <= high + GIB / 200)
    pool = "no pool" if low is None else f"{low / GIB:.2f} to {high / GIB:.2f} GiB"
    return outcome and inside, f"exit {code}, {answer.get('verdict')}, {pool}: {reason_of(answer)}"


@pytest.mark.laws
@pytest.mark.parametrize("name", some(ROWS, 3, by=lambda name: (name[0], name in MISSES)))
def test_a_public_start(name: str) -> None:
    right, said = is_right(ROWS[name])
    if name in MISSES:
        assert not right, f"right by now: take it off the list ({MISSES[name]})"
    else:
        assert right, f"{ROWS[name]['printed']}, pool {ROWS[name].get('pool_gib')}; {said}"


def test_misses_are_rows() -> None:
    assert set(MISSES) <= set(ROWS)
    assert len(ROWS) - len(MISSES) >= 60
