"""Laws of the markup: text goes in and comes out again, points stay in their picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.deployment.lengths import Rung
from kvplan.report.charts import _curves
from kvplan.report.html.markup import LONGEST, Markup, el, markup, text
from kvplan.report.html.svg import round_steps
from kvplan.report.layout import printable
from tests.report.full.pages import check_pictures

ANY = st.text(st.characters(), max_size=200)


@given(ANY, ANY)
def test_text_comes_out_as_it_went_in(words: str, more: str) -> None:
    one = ElementTree.fromstring(el("p", words, el("b", more), title=more))
    assert "".join(one.itertext()) == printable(words) + printable(more)
    assert [child.tag for child in one] == ["b"]
    # XML reads white space in an attribute as blanks.
    assert (one.get("title") or "").split() == printable(more).split()


@given(ANY)
def test_only_markup_is_markup(words: str) -> None:
    assert markup(words) == text(words)
    assert "<" not in markup(words)
    assert markup(Markup("<b/>"), None, words) == "<b/>" + text(words)


def test_no_name_of_ours_is_made_of_text() -> None:
    for name in ("a b", "a>", "1", ""):
        with pytest.raises(ValueError, match=r"^"):
            el(name)
    with pytest.raises(ValueError, match=r"^"):
        el("p", **{"on click": "x"})


def test_a_name_of_a_megabyte_is_cut() -> None:
    assert len(text("x" * 10**6)) == LONGEST + 1


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=2,
                max_size=20, unique_by=lambda one: one[0]), st.integers(1, 2**20),
       st.none() | st.integers(0, 10**7))  # fmt: skip
def test_curves_lie_in_their_picture(
    found: list[tuple[int, int, int]], asked: int, required: int | None
) -> None:
    lengths = [Rung(tokens, likely, min(likely, safe)) for tokens, likely, safe in sorted(found)]
    drawn = _curves(lengths, asked, required)
    if drawn is None:
        counted = [held.likely for held in lengths if held.tokens]
        assert len(counted) < 2 or max(counted) == 0
        return
    tree = ElementTree.fromstring(drawn)
    check_pictures(tree)
    within = lengths[0].tokens <= asked <= lengths[-1].tokens and bool(required)
    assert ("required" in drawn) <= within


@given(st.integers(1, 10**9))
def test_scales_have_few_steps(most: int) -> None:
    steps = round_steps(1, most)
    assert 1 in steps
    assert len(steps) <= 10
    assert steps == sorted(set(steps))
    assert all(step <= most for step in steps)
