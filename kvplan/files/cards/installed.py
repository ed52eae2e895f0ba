"""The set of cards that ``kvplan cards update`` put in place: where it lies, and whether it is in use."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.json_input import read_limited
from kvplan.record import Json, record
from kvplan.units import MIB
from kvplan.version import __version__

FILE = "cards.json"
MOST_BYTES = 32 * MIB
_AGAIN = "remove it, or run kvplan cards update again"


@record()
class Installed:
    """The cards that `kvplan cards update` installed. origin: the file or URL; index: as that of packaged
    cards."""

    made: str
    kvplan: str
    origin: str
    sha256: str
    index: Json
    cards: Mapping[str, str]

    @property
    def is_newer(self) -> bool:
        """Whether it may have cards that this kvplan lacks: a later version brings all of them itself."""
        return _numbers(self.kvplan) >= _numbers(__version__)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def user_folder() -> Path:
    """The folder for kvplan's own data: KVPLAN_DATA_DIR, else where the system keeps such folders."""
    named = os.environ.get("KVPLAN_DATA_DIR")
    if named:
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvplan"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kvplan"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "kvplan"


@cache
def installed() -> Installed | None:
    """The set that is in place, or None. Raises KvplanError(bad-card-set) for a file that was changed."""
    try:
        path = user_folder() / FILE
        if not os.path.isfile(path):  # noqa: PTH113 - never raises, whatever the name
            return None
    except (OSError, RuntimeError):  # no home, or one that cannot be looked into
        return None
    try:
        body = json.loads(read_limited(path, MOST_BYTES))
        words = {name: str(body[name]) for name in ("made", "kvplan", "origin", "sha256")}
        found = Installed(**words, index=body["index"], cards=body["cards"])
        whole = found.index["cards"].keys() == found.cards.keys() and isinstance(found.index["names"], dict)
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise KvplanError("bad-card-set", f"{path} was cut short or changed by hand", help=_AGAIN)
    return found
