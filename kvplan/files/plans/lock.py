"""Lock files: JSON that `kvplan check --write-lock` writes and ``--baseline`` reads."""

from __future__ import annotations

import json
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.json_input import parse_json, read_limited
from kvplan.files.writing import write_whole
from kvplan.plans.lock import LOCK_FORMAT, Lock, lock_of
from kvplan.record import dumped

_BEGIN = '{\n  "kvplan": "lock/'
_AGAIN = "kvplan check PLANS --write-lock FILE writes it anew"


def is_lock(path: Path) -> bool:
    """Whether a file begins as a lock does."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_BEGIN)).decode("utf-8", "replace") == _BEGIN
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def read_lock(path: Path) -> Lock:
    """Raises KvplanError(bad-lock) where it is none that this kvplan reads."""
    try:
        return lock_of(parse_json(read_limited(path), name=str(path)))
    except (KeyError, TypeError, ValueError):
        raise KvplanError("bad-lock", f"{path} is no {LOCK_FORMAT}", help=_AGAIN) from None


def write_lock(lock: Lock, path: Path) -> None:
    """Sorted, one figure a line, so that a changed one is a changed line. Raises KvplanError."""
    text = json.dumps(dumped(lock), indent=2, ensure_ascii=True, allow_nan=False)
    write_whole(path, text + "\n", folders=True)
