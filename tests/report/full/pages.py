"""Reading a page back, strictly: it must be XML as well as HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import combinations, pairwise
from xml.etree import ElementTree

from kvplan.report.html.svg import TYPE, width_of

VOID = frozenset(("meta", "br", "hr"))
LOADS = re.compile(r"https?:|//|<script|<link|<img|<iframe|@import|url\(|src=|\bon[a-z]+=")
"""What makes a browser ask for something or run something."""


class Balanced(HTMLParser):
    """A reader of HTML that minds what browsers forgive."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        assert tag not in VOID
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID, f"<{tag}/> is not closed for a browser"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> ElementTree.Element:
    """The page as a tree. AssertionError: a browser would read another one, or load or run something."""
    reader = Balanced()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    outside = re.sub(r">[^<>]*<", "><", text)  # words that people read may name an address
    assert LOADS.findall(re.sub(r'(content|aria-label)="[^"]*"', "", outside)) == []
    tree = ElementTree.fromstring(text)
    for one in tree.iter():
        one.tag = one.tag.lower()
    check(tree)
    return tree


def check(tree: ElementTree.Element) -> None:
    """What somebody needs who reads by ear or by keyboard."""
    assert tree.get("lang")
    ids = [one.get("id") for one in tree.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    for link in tree.iter("a"):
        assert (link.get("href") or "").removeprefix("#") in ids
    for svg in tree.iter("svg"):
        assert svg.get("role") == "img"
        assert svg.get("aria-label")
    for table in tree.iter("table"):
        assert all(head.get("scope") in ("row", "col") for head in table.iter("th"))
    for region in tree.iter("div"):
        assert region.get("class") == "pair" or region.get("aria-label")
    levels = [int(one.tag[1]) for one in tree.iter() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def words(tree: ElementTree.Element) -> str:
    return " ".join(" ".join(tree.itertext()).split())


def section(tree: ElementTree.Element, title: str) -> ElementTree.Element:
    """The section whose heading begins so."""
    found = [
        one for one in tree.iter("section") for head in one if re.fullmatch("h[2-6]", head.tag)
        and (head.text or "").startswith(title)
    ]  # fmt: skip
    assert len(found) == 1, title
    return found[0]


def rows(section: ElementTree.Element) -> list[list[ElementTree.Element]]:
    """The cells of the rows of a section's tables."""
    return [list(row) for body in section.iter("tbody") for row in body]


def values(row: list[ElementTree.Element]) -> list[str]:
    """The exact numbers of a row."""
    return [str(one.get("value")) for cell in row for one in cell.iter("data")]


def floats(tree: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """(x, y, and the size of its picture) of every point that is drawn."""
    found = []
    for svg in tree.iter("svg"):
        _, _, wide, high = map(float, (svg.get("viewBox") or "").split())
        for one in svg.iter():
            there = [tuple(map(float, point.split(","))) for point in (one.get("points") or "").split()]
            there += [
                (float(one.get(x) or 0), float(one.get(y) or 0))
                for x, y in (("x", "y"), ("x1", "y1"), ("x2", "y2")) if one.get(x) is not None
            ]  # fmt: skip
            if one.tag == "rect":
                right = float(one.get("x") or 0) + float(one.get("width") or 0)
                there.append((right, float(one.get("y") or 0) + float(one.get("height") or 0)))
            found += [(x, y, wide, high) for x, y in there]
    return found


def check_pictures(tree: ElementTree.Element) -> None:
    """Everything drawn lies in its picture, no word is cut, and no word lies on another."""
    assert all(-1 <= x <= wide + 1 and -1 <= y <= high + 1 for x, y, wide, high in floats(tree))
    for svg in tree.iter("svg"):
        _, _, wide, high = map(float, (svg.get("viewBox") or "").split())
        boxes = [_box(one) for one in svg.iter("text")]
        for left, top, right, foot, word in boxes:
            assert -1 <= left <= right <= wide + 1, word
            assert -1 <= top <= foot <= high + 1, word
        for one, other in combinations(boxes, 2):
            apart = (
                one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] or other[3] <= one[1]
            )
            assert apart, (one[4], other[4])


def _box(text: ElementTree.Element) -> tuple[float, float, float, float, str]:
    """(left, top, right, foot) of a word as large as it is drawn on a telephone, and the word."""
    word, x, y = "".join(text.itertext()), float(text.get("x") or 0), float(text.get("y") or 0)
    wide = width_of(word)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[text.get("text-anchor") or "start"]
    return left, y - TYPE * 0.8, left + wide, y + TYPE * 0.2, word
