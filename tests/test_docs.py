"""Every figure in README and docs is what the commands print today."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import make_docs

ROOT = Path(__file__).resolve().parents[1]


def test_no_block_is_stale() -> None:
    assert make_docs.main(["--check"]) == 0


def test_links_inside_the_repository_exist() -> None:
    missing = [
        f"{page}: {target}"
        for page in [*make_docs.PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]
        for target in re.findall(
            r"\]\((?!https?:|#|mailto:)([^)#]+)", (ROOT / page).read_text(encoding="utf-8")
        )
        if not (ROOT / page).parent.joinpath(target).exists()
    ]
    assert missing == []


def test_a_stale_block_is_found() -> None:
    text = "<!-- table: families -->\nold\n<!-- end: 2020-01-01, kvplan 0.0.0 -->"
    fresh, stale = make_docs.render(text, "2020-01-02")
    assert stale == ["families"]
    assert make_docs.render(fresh, "2020-01-03") == (fresh, [])
