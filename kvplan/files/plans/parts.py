"""What building a plan needs of its file: the complaints that are kept, and the paths in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.plans.merge import Files, directory_of
from kvplan.files.plans.schema import PlanFile
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.marks import Path as Place
from kvplan.plans.flags import EngineFlags


class Parts:
    """Collects what is wrong with one plan while its parts are built."""

    def __init__(
        self, located: Located, file: PlanFile, engine_of: Callable[[str], EngineFlags], files: Files
    ) -> None:
        self.located, self.file, self.engine_of, self.files = located, file, engine_of, files
        self.errors: list[KvplanError] = []
        self.used: list[str] = []
        self.notes: list[str] = []

    def attempt(self, call: Callable[[], Any], place: Place, *, at_key: bool = False) -> Any:
        """What ``call`` returns; its complaint gets the place and is kept, then None."""
        try:
            return call()
        except KvplanError as error:
            self.fail(error, place, at_key=at_key)
            return None

    def fail(self, error: KvplanError, place: Place, *, at_key: bool = False) -> None:
        where = self.located.where(place, at_key=at_key)
        places = (where, *(one for one in error.places if one != where))
        self.errors.append(
            KvplanError(
                error.code, error.message, where=places, detail=error.detail, help=error.help,
                exit_code=error.exit_code,
            )
        )  # fmt: skip

    def beside(self, text: str, place: Place) -> Path:
        """A path as it is meant: from the folder of the file that the value stands in."""
        node = self.located.node(place)
        path = (directory_of(node) if node is not None else Path()) / text
        self.files.bring(path)
        return path

    def missing(self, name: str, place: Place, *others: str) -> None:
        """The complaint about a key that is not there; place: the key that asks for it."""
        ways = " or ".join(f"`{key}:`" for key in (name.rpartition(".")[2], *others))
        error = self.located.error(
            "missing-key", f"the key `{name}` is missing", place, at_key=True, help=f"add {ways}"
        )
        self.errors.append(error)
