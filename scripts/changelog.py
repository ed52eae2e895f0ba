"""Changelog fragments: one file a change, gathered at a release.

    python -m scripts.changelog                           check the fragments
    python -m scripts.changelog 0.2.0 --date 2027-01-31   gather them into CHANGELOG.md
    python -m scripts.changelog --released v0.2.0         is this tag's changelog written? (the release asks)

A fragment is `changelog.d/NAME.SECTION.md`: lines that begin with "- ", as they shall stand. So two pull
requests never touch the same line.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {
    "numbers": "Numbers that changed",
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.(" + "|".join(SECTIONS) + r")\.md")


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Section → its files by name, in the order of `SECTIONS`. Raises SystemExit for a file that is none."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*")):
        if path.name == "README.md":
            continue
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise SystemExit(f"{path.name}: call it NAME.SECTION.md, SECTION one of {', '.join(SECTIONS)}")
        if not path.read_text(encoding="utf-8").startswith("- "):
            raise SystemExit(f"{path.name}: its lines begin with '- ', as they shall stand in the changelog")
        found.setdefault(match[1], []).append(path)
    return {section: found[section] for section in SECTIONS if section in found}


def gathered(text: str, found: dict[str, list[Path]], version: str, date: str) -> str:
    """The changelog with the fragments under ``version``: in the unreleased part, or in a new one on top.

    An unreleased part may have been begun under a lower number: it becomes this version's.
    """
    heading = f"## {version} ({date})\n"
    unreleased = re.search(r"^## [\d.]+ \(unreleased\)\n", text, re.MULTILINE)
    if unreleased is not None:
        before, rest = text[: unreleased.start()], text[unreleased.end() :]
    else:
        before, mark, rest = text.partition("\n## ")
        before, rest = before + "\n", mark and f"\n## {rest}"
    end = rest.find("\n## ")
    body, after = (rest, "") if end < 0 else (rest[:end] + "\n", rest[end + 1 :])
    for section, paths in found.items():
        lines = "".join(path.read_text(encoding="utf-8").rstrip("\n") + "\n" for path in paths)
        body = _under(body, f"### {SECTIONS[section]}\n", lines)
    return f"{before}{heading}\n{body.strip()}\n" + (f"\n{after}" if after else "")


def _under(body: str, heading: str, lines: str) -> str:
    """The lines at the end of the part that the heading begins, or a new part at the end."""
    if heading not in body:
        return f"{body.rstrip()}\n\n{heading}\n{lines}"
    before, _, rest = body.partition(heading)
    end = rest.find("\n### ")
    part, after = (rest, "") if end < 0 else (rest[:end], rest[end:])
    return f"{before}{heading}{part.rstrip()}\n{lines}{after}"


def unready(root: Path, tag: str) -> str | None:
    """Why this tag is not to be released; None where it is."""
    stated = (root / "kvplan" / "version.py").read_text(encoding="utf-8")
    if tag != f"v{re.findall(r'__version__ = .(.+?).$', stated, re.MULTILINE)[0]}":
        return f"the tag is {tag}, kvplan/version.py says otherwise"
    if not re.search(rf"^## {re.escape(tag[1:])} \(\d{{4}}-\d\d-\d\d\)$", _text(root), re.MULTILINE):
        return (
            f"CHANGELOG.md has no dated heading of {tag[1:]}: python -m scripts.changelog {tag[1:]} --date …"
        )
    left = fragments(root / "changelog.d")
    return "changelog.d still has fragments" if left else None


def _text(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text(encoding="utf-8")


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("version", nargs="?")
    parser.add_argument("--date")
    parser.add_argument("--released", metavar="TAG")
    options = parser.parse_args()
    if options.released:
        why = unready(ROOT, options.released)
        if why:
            sys.stderr.write(f"{why}\n")
        return int(why is not None)
    found = fragments(ROOT / "changelog.d")
    if options.version is None:
        return 0
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", options.date or ""):
        parser.error("--date YYYY-MM-DD says when")
    (ROOT / "CHANGELOG.md").write_bytes(gathered(_text(ROOT), found, options.version, options.date).encode())
    for path in (path for paths in found.values() for path in paths):
        path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
