"""A revision of the repository that some paths lie in, read without touching its work tree or index."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.folders import exists, is_folder
from kvplan.files.writing import cannot_write
from kvplan.later import regex
from kvplan.units import MIB

MAX_FILE = 64 * MIB
_LINK = "120000"
_SECONDS = 120
_BLOB = regex(rb"[0-9a-f]+ blob ([0-9]{1,15})\n")


class Revision:
    """One commit. root: the top of the work tree; copy: a folder that files of the commit are put into."""

    def __init__(self, name: str, paths: Sequence[Path], copy: Path) -> None:
        """Raises KvplanError(unknown-revision), CannotRunHere(no-git)."""
        beside = next((path for path in paths if exists(path)), Path())
        self._here = beside if is_folder(beside) else beside.parent
        self.copy = copy.resolve()
        self.root = Path(self._text("rev-parse", "--show-toplevel", what=name).rstrip("\n")).resolve()
        self.commit = self._text(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", what=name
        ).strip()

    def _run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """One call of git, with this on its standard input. Raises CannotRunHere(no-git)."""
        try:
            return subprocess.run(
                ["git", "-C", str(self._here), *words],
                input=given,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            )
        except FileNotFoundError:
            raise CannotRunHere(
                "no-git", "a revision as baseline needs git", help="or name a folder: --baseline old/"
            ) from None
        except subprocess.TimeoutExpired:
            raise CannotRunHere("no-git", f"git did not answer within {_SECONDS} s") from None
        except OSError as error:
            raise CannotRunHere("no-git", f"git cannot be started: {error.strerror or error}") from None

    def _text(self, *words: str, what: str) -> str:
        done = self._run(*words)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise KvplanError(
                "unknown-revision",
                f"the baseline {what} is no file, and no revision of a git repository here",
                detail=said[:3],
                help=("git fetch origin main brings it in a shallow clone", "or name a folder"),
            )
        return done.stdout.decode("utf-8", "surrogateescape")

    @cached_property
    def entries(self) -> dict[str, str]:
        """Path in the commit → blob, of every regular file."""
        listing = self._text("ls-tree", "-r", "-z", "--full-tree", self.commit, what=self.commit)
        found = {}
        for line in listing.split("\0"):
            head, tab, name = line.partition("\t")
            if tab:
                mode, kind, blob = head.split(" ")
                if kind == "blob" and mode != _LINK:
                    found[name] = blob
        return found

    def inside(self, path: Path) -> str | None:
        """A path's name in the commit, given where it lies in the work tree or in the copy; None outside."""
        full = Path(os.path.normpath(Path.cwd() / path))
        for top in (self.copy, self.root):
            for one in (full, _resolved(full)):
                if one == top or top in one.parents:
                    return one.relative_to(top).as_posix()
        return None

    def bring(self, path: Path) -> None:
        """Put a file of the commit (of a folder: the JSON files in it) where the copy has it."""
        name = self.inside(path)
        if name is None:
            return
        if name in self.entries:
            self._write(name)
            return
        for other in self.entries:
            if other.endswith(".json") and other.rpartition("/")[0] == name:
                self._write(other)

    def _write(self, name: str) -> None:
        target = self.copy / name
        if exists(target):
            return
        done = self._run("cat-file", "blob", self.entries[name])
        if done.returncode == 0:
            self._put(name, done.stdout)

    def _put(self, name: str, content: bytes) -> None:
        if len(content) > MAX_FILE:
            return
        target = self.copy / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        except OSError as error:
            raise cannot_write(target, error) from None

    def bring_all(self, names: Iterable[str]) -> None:
        """Several files with one call of git."""
        wanted = [name for name in names if name in self.entries and not exists(self.copy / name)]
        if not wanted:
            return
        asked = "".join(f"{self.entries[name]}\n" for name in wanted).encode()
        done = self._run("cat-file", "--batch", given=asked)
        at = 0
        for name in wanted:
            head = _BLOB.match(done.stdout, at)
            size = 0 if head is None else int(head[1])
            if head is None or done.returncode or len(done.stdout) <= head.end() + size:
                raise CannotRunHere("no-git", f"git did not give {name} of the commit {self.commit[:12]}")
            at = head.end() + size + 1
            self._put(name, done.stdout[head.end() : at - 1])

    @cached_property
    def changed_names(self) -> frozenset[str]:
        """Names of the files that differ from the commit, or that it does not have."""
        changed = self._text(
            "diff", "--name-only", "-z", "--no-ext-diff", self.commit, "--", what=self.commit
        )
        new = self._text("-C", str(self.root), "ls-files", "--others", "-z", what=self.commit)
        return frozenset(name for name in (*changed.split("\0"), *new.split("\0")) if name)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
