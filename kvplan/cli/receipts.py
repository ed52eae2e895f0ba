"""``kvplan receipts`` and ``kvplan cards add-evidence``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.folders import files_below, is_folder
from kvplan.files.plans.receipts import counts_against, read_receipt
from kvplan.plans.receipt import ReadReceipt
from kvplan.report.layout import Span, line
from kvplan.report.words import command
from kvplan.results import SCHEMA_VERSION

FOLDER = "evidence"
_PASSED_OVER = ("bad-receipt", "no-such-file")
"""Other JSON files may lie beside receipts, and a file may be gone by now."""
_SKIPPED = frozenset({"node_modules", "__pycache__"})


def run(words: list[str], given: Given) -> Answer:
    """Receipts of files and folders, side by side. Exit 1 where one is edited, refuted, or stopped without a
    confirmed one that counts in its place; 2 where a named file is no receipt."""
    check_color(given)
    read: list[tuple[str, ReadReceipt]] = []
    broken: list[tuple[str, KvplanError]] = []
    for path, named in _paths(words):
        found = _read(path)
        if isinstance(found, ReadReceipt):
            read.append((str(path), found))
        elif named:
            raise found
        elif found.code not in _PASSED_OVER:
            broken.append((str(path), found))
    if not read and not broken:
        raise KvplanError(
            "no-receipts",
            f"no receipt was found in {', '.join(words) or FOLDER}",
            help="kvplan validate PLAN writes one",
        )
    bad = any(counts_against(one, [other for _, other in read]) for _, one in read)
    code = EXIT_CANNOT_ANSWER if broken else EXIT_NO if bad else EXIT_OK
    if is_given(given, "json"):
        entries = [
            {"path": path, "intact": one.intact, "receipt": one.receipt.model_dump()} for path, one in read
        ]
        errors = [{"path": path, "error": error.as_dict()} for path, error in broken]
        data = {"schema_version": SCHEMA_VERSION, "receipts": entries, "errors": errors}
        return Answer(data=data, code=code)
    from kvplan.report.receipts import receipts_screen

    return Answer(receipts_screen(read, broken), code=code)


def _read(path: Path) -> ReadReceipt | KvplanError:
    try:
        return read_receipt(path)
    except KvplanError as error:
        return error


def _paths(words: list[str]) -> Iterator[tuple[Path, bool]]:
    """Files as named; the JSON files of folders, in order. Without a word: every evidence/ below here."""
    if not words:
        below = (path for path in files_below(Path(), (".json",)) if FOLDER in path.parts[:-1])
        yield from ((path, False) for path in sorted(below) if not _SKIPPED.intersection(path.parts))
        return
    for word in words:
        path = Path(word)
        if is_folder(path):
            yield from ((one, False) for one in sorted(files_below(path, (".json",))))
        else:
            yield path, True


def add_evidence(words: list[str], given: Given) -> Answer:
    """Append what a receipt measured to a card."""
    check_color(given)
    from kvplan.api import size
    from kvplan.files.cards.evidence import add_evidence as add

    card, receipt = Path(words[0]), Path(words[1])
    read = read_receipt(receipt)
    if not read.intact:
        raise KvplanError(
            "edited-receipt", f"{receipt} was changed after it was written: its digest is another"
        )
    entries = add(card, read.receipt, size=size)
    if is_given(given, "json"):
        dumped = [
            {"engine": one.engine, "settings": dict(one.settings), "field": one.field, "value": one.value}
            for one in entries
        ]
        return Answer(data={"schema_version": SCHEMA_VERSION, "path": str(card), "evidence": dumped})
    screen = [line(f"Added to {card}:")]
    screen += [line(f"{one.engine}  {one.field}  {one.value}", indent=1) for one in entries]
    again = command("kvplan", "cards", "lint", str(card))
    return Answer([*screen, line(Span(f"check it: {again}", "dim"), indent=1)])
