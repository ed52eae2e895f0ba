"""Published serving runs beside their simulation: the page is what the script writes."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest

from scripts import serving_accuracy
from scripts.serving_rows import (
    FAR,
    FIGURES,
    MOST,
    SEED,
    Row,
    arrivals_of,
    prompts,
    read_left,
    read_rows,
    read_sources,
)

ROWS = read_rows()
LINES = serving_accuracy.BLOCK.search(serving_accuracy.PAGE.read_text(encoding="utf-8"))
ASKED = ("gpt-oss-20b/a100.md", "qwen3-32b/h100.md", "20260217-170634-llama-2-7b-tp1-reasoning stage 0")
STATED = 0.8
"""Of the figures, that lie inside."""


def page() -> str:
    assert LINES is not None
    return LINES[0]


def quick() -> list[Row]:
    """The shortest load of each kind."""
    found = [[row for row in ROWS if row.raw["file"] == name] for name in ASKED]
    return [min(rows, key=lambda row: row.load["input"]) for rows in found]


@pytest.mark.parametrize("row", quick(), ids=lambda row: row.raw["file"])
def test_a_row_of_the_page_is_what_is_simulated_today(row: Row) -> None:
    line = serving_accuracy.line(row, serving_accuracy.judged(row))
    assert line in page(), "docs/simulate.md is stale: python -m scripts.serving_accuracy --write"


def test_the_page_has_every_row_and_source_once() -> None:
    lines = [line for line in page().splitlines() if re.match(r"\| (ii|iv|vi|ix|xi?|xii) ", line)]
    assert len(lines) == len(ROWS)
    for row, line in zip(ROWS, lines):
        assert line.startswith(f"| {row.kind} | {row.raw['model']}, ")
        assert line.count(": ") == len(row.figures)
    assert all(source.where in page() for source in read_sources().values())
    assert {one.row for one in read_left()} | {row.kind for row in ROWS} == {
        "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii",
    }  # fmt: skip


def test_four_of_five_published_figures_lie_inside() -> None:
    outside = page().count(serving_accuracy.MISS.strip()) - 1  # the legend has the mark once
    figures = sum(len(row.figures) for row in ROWS)
    assert figures >= 100
    assert 1 - outside / figures >= STATED
    assert f"| all | {figures} | {figures - outside} (" in page()


def test_prompts_that_begin_alike_share_whole_blocks_and_nothing_else() -> None:
    load = {"input": 592, "output": 1, "groups": 3, "each": 4, "shared": 100}
    every = list(islice(prompts(load), 12))
    assert len(set(every)) == 12
    assert all(len(ids) == 37 for ids in every)
    assert Counter(ids[:6] for ids in every).most_common() == [
        (ids, 4) for ids in dict.fromkeys(ids[:6] for ids in every)
    ]
    assert len({one for ids in every for one in ids[6:]}) == 12 * 31
    assert list(islice(prompts(load), 24))[12:] == every


def test_what_was_asked_before_comes_long_before() -> None:
    load = {"input": 100, "output": 9, "groups": 2, "each": 5, "shared": 32, "again": True}
    load |= {"rate": 4, "requests": 20}
    rows, warm = arrivals_of(load)
    assert (len(rows), warm) == (30, 10)
    assert rows[10].at_ns - rows[9].at_ns >= FAR
    assert {row.ids for row in rows[10:]} <= {row.ids for row in rows[:10]}
    alone, none = arrivals_of({"input": 100, "output": 9, "requests": MOST + 5})
    assert (len(alone), none) == (MOST, 0)
    assert {row.at_ns for row in alone} == {0}


def test_every_row_is_whole() -> None:
    assert SEED
    for row in ROWS:
        assert row.figures.keys() <= FIGURES.keys()
        assert all(value > 0 for value in row.figures.values())
        assert row.load["input"] > 0
        assert row.load["output"] > 0
