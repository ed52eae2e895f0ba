"""Write kvplan/engines/vllm/data/source_lines.tsv: where each release's source logs what a log reader knows.

    python -m scripts.record_source_lines RELEASES

RELEASES: a folder with one folder a release (0.8.5 …), each an unpacked vLLM wheel. The lines are those of
the calls of ``logger`` whose text holds an anchor of `words.log`: a log prints the file's name
and that line, so a build without a release number of its own is told by them. Everything is read as text
(ast).
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvplan.engines.vllm.words.log import RULES
from kvplan.engines.vllm.words.printed import FILE, HEAD

LEAST = 12
"""Characters of an anchor: shorter ones stand in texts of other lines too."""
_ROOMS = ("v1", "worker", "executor", "config", "engine", "model_executor/model_loader", "compilation")
"""Folders of vllm/ whose lines describe a start."""


def logged(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(text, line) of every call of ``logger.something`` in a source file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if getattr(node.func.value, "id", "") == "logger" and node.args:
            yield text_of(node.args[0]), node.lineno


def text_of(node: ast.expr) -> str:
    """The constant parts of a literal, an f-string or a sum of such."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return ""


def anchors() -> list[str]:
    """The anchors of the log's rules that are long enough, each once."""
    found = dict.fromkeys(rule.anchor.decode() for rule in RULES)
    return [anchor for anchor in found if len(anchor) >= LEAST and anchor.isprintable()]


def places(release: Path) -> dict[tuple[str, str], int]:
    """(file's name, anchor) → line, for what is logged once in files of that name."""
    lines: dict[tuple[str, str], set[int]] = {}
    known = anchors()
    files = [path for room in _ROOMS for path in sorted((release / "vllm" / room).rglob("*.py"))]
    for path in files:
        for text, line in logged(ast.parse(path.read_text(encoding="utf-8"))):
            for anchor in known:
                if anchor in text:
                    lines.setdefault((path.name, anchor), set()).add(line)
    return {key: found.pop() for key, found in lines.items() if len(found) == 1}


def table(releases: Iterable[Path]) -> str:
    """The text of the file: a row for each place, with the line of each release that has it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for release in releases:
        for key, line in places(release).items():
            rows.setdefault(key, []).append(f"{release.name}={line}")
    told = ["\t".join((*key, " ".join(lines))) for key, lines in sorted(rows.items()) if len(lines) > 1]
    return "\n".join([HEAD, *told]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("releases", type=Path, help="a folder with one folder a release")
    folders = [path for path in parser.parse_args().releases.iterdir() if (path / "vllm" / "v1").is_dir()]
    folders.sort(key=lambda path: tuple(int(part) for part in path.name.split(".")))
    FILE.write_text(table(folders), encoding="utf-8")


if __name__ == "__main__":
    main()
