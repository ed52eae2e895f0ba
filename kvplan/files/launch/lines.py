"""Each line of a launch file beside what became of it, by its place: the file is read again without it.

A line whose absence changes a server was counted, one whose absence changes what had no rule was not read. So
the readers themselves say it, of whatever kind the file is, and a word that stands elsewhere too (in a
router's arguments, in an ``echo``) is not taken for the one that counts. A line without which the file is no
text of its kind any more is judged by its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kvplan.engines.launch import flags_of_server
from kvplan.errors import KvplanError
from kvplan.files.launch.found import Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.words_of_lines import COUNTED, NOTHING, PARTLY, REFUSED, UNREAD, by_words
from kvplan.later import regex
from kvplan.named import NamedTuple
from kvplan.plans.serve import flags_of

MOST_LINES = 600
"""Of a file that is read once a line."""
_NO_TEXT = ("bad-yaml", "bad-python", "bad-json", "bad-command", "yaml-too-large")
_NO_SHELL = "is no shell that kvplan reads"
_OPTION = regex(r"(?<![\w-])--?[A-Za-z][\w.-]*", re.ASCII)
_NUMBER = regex(r"(?<![\w.-])\d{1,6}(?![\w.])", re.ASCII)
_HEREDOC = regex(r"<<-?[ \t]*['\"]?([A-Za-z_]\w*)")
_MADE_UP = "--no-option-of-any-server"
_ITEM = regex(r"([ \t]*)-[ \t]+\S")
_HOLDER = regex(r"[ \t]*(?:-[ \t]+)?['\"]?[A-Za-z][\w./-]*['\"]?:[ \t]*(?:[|>][-+\d]*)?[ \t]*(?:#.*)?$")
"""A key below which its value stands."""
Read = Callable[[str], "tuple[Sequence[Launch], Sequence[Broken]]"]


class Line(NamedTuple):
    """A line of the file. became: `COUNTED` | `PARTLY` | `NOTHING` | `UNREAD` | `REFUSED`, or "" where it
    says nothing of a server. placed: not judged by its words alone."""

    text: str
    became: str
    placed: bool = True


class _Read(NamedTuple):
    """A reading as far as a line may change it."""

    names: tuple[str, ...]
    servers: tuple[object, ...]
    quiet: tuple[object, ...]
    unread: tuple[str, ...]
    refused: tuple[object, ...]
    broken_shell: int


def became(text: str, read: Read, found: Sequence[Launch], broken: Sequence[Broken]) -> Iterator[Line]:
    """Each line with what became of it. read: the servers of a text in place of this one. found, broken: of
    this one, with those that make no plan."""
    rows = text.splitlines()
    whole = _reading(text, read) if 1 < len(rows) <= MOST_LINES else None
    words, without_plan = by_words(rows, found, broken), {one.name for one in broken}
    ends = set(_HEREDOC.findall(text))
    for place, row in enumerate(rows):
        if not row.strip() or row.strip() in ends or _says_nothing(row):
            yield Line(row, "")
            continue
        said = None if whole is None else _of_line(rows, place, whole, read, without_plan)
        if said == COUNTED and words[place] == UNREAD:
            said = PARTLY
        yield Line(row, words[place] if said is None else said, placed=said is not None or not words[place])


def _says_nothing(row: str) -> bool:
    """Whether a line is a comment, or parts documents. Directives of jobs (``#SBATCH``) are none."""
    bare = row.lstrip()
    return bare.startswith(("//", "---")) or (bare[:1] == "#" and not bare.startswith(("#SBATCH", "#FLUX:")))


def _of_line(rows: list[str], place: int, whole: _Read, read: Read, refused: set[str]) -> str | None:
    """The word for what became of a line; None where the file cannot be read without it. refused: the names
    of the servers that make no plan."""
    row = rows[place]
    if _HOLDER.fullmatch(row):
        return ""
    less = _reading(_without(rows, place), read)
    if less is None or less.broken_shell > whole.broken_shell:
        return None
    changed = _changed(whole, less)
    if not changed and _NUMBER.search(row):
        # A value that is as good as none: one replica, GPU 0.
        more = _NUMBER.sub(lambda match: str(int(match[0]) + 1), row)
        other = _reading("\n".join([*rows[:place], more, *rows[place + 1 :]]), read)
        changed = _changed(whole, other) if other is not None else ""
        changed = changed if changed == COUNTED else ""
        less = other if changed and other is not None else less
    if changed == COUNTED and refused and _named(whole, less) <= refused:
        return REFUSED
    if not changed and _OPTION.search(row):
        made_up = _OPTION.sub(_MADE_UP, row, count=1)
        other = _reading("\n".join([*rows[:place], made_up, *rows[place + 1 :]]), read)
        changed = NOTHING if other is not None and other.unread != whole.unread else ""
    return changed


def _without(rows: list[str], place: int) -> str:
    """The text without a line: what goes on behind a backslash goes on, and an entry of a list keeps its
    hyphen where more of it stands below."""
    row = rows[place]
    if row.rstrip().endswith("\\"):
        return "\n".join([*rows[:place], *rows[place + 1 :]])
    if place and rows[place - 1].rstrip().endswith("\\"):
        before = rows[place - 1].rstrip()[:-1]
        return "\n".join([*rows[: place - 1], before, "", *rows[place + 1 :]])
    item = _ITEM.match(row)
    after = next((one for one in rows[place + 1 :] if one.strip()), "")
    deeper = item is not None and len(after) - len(after.lstrip()) > len(item[1]) and ":" in after
    kept = f"{item[1]}-" if item is not None and deeper else ""
    return "\n".join([*rows[:place], kept, *rows[place + 1 :]])


def _changed(one: _Read, other: _Read) -> str:
    if one.refused != other.refused:
        return REFUSED if one.servers == other.servers or len(one.refused) > len(other.refused) else COUNTED
    if one.servers != other.servers:
        return COUNTED
    if one.unread != other.unread:
        return UNREAD
    return NOTHING if one.quiet != other.quiet else ""


def _named(one: _Read, other: _Read) -> set[str]:
    """The servers that another reading changes; all of them where it has another number."""
    if len(one.servers) != len(other.servers):
        gone = set(one.names) - set(other.names)
        return gone or set(one.names)
    return {
        name for name, mine, its in zip(one.names, one.servers, other.servers, strict=True) if mine != its
    }  # fmt: skip


def _reading(text: str, read: Read) -> _Read | None:
    """The reading of a text; None of one that is none of its kind."""
    launches: Sequence[Launch] = ()
    broken: Sequence[Broken] = ()
    try:
        launches, broken = read(text)
    except KvplanError as error:
        if error.code in _NO_TEXT:
            return None
        broken = (Broken("", error),)
    refused = [(one.name, one.unnamed.message) for one in launches if one.unnamed is not None]
    return _Read(
        tuple(one.name for one in launches),
        tuple(_server(one) for one in launches),
        tuple(_told(one, quiet=True) for one in launches),
        tuple(item for one in launches for item in one.unread),
        (*refused, *((one.name, one.error.message) for one in broken)),
        sum(note.endswith(_NO_SHELL) for one in launches for note in one.notes),
    )


def _server(one: Launch) -> tuple[object, ...]:
    """Everything of a server that its figures follow from."""
    devices = tuple(device.rpartition("/")[2] for device in one.devices)
    return (
        one.model, one.engine, _told(one, quiet=False), one.replicas, one.gpu, one.gpus, one.slice, devices,
        repr(one.wish),
    )  # fmt: skip


def _told(one: Launch, *, quiet: bool) -> tuple[tuple[str, str], ...]:
    """The options of a plan that change no byte, or the others."""
    short = flags_of(one.engine).short
    silent = {
        short.get(plain, plain)
        for option in set(flags_of_server(one.engine.partition("@")[0]).values()) if option.memoryless
        for plain in (name.lstrip("-").replace("-", "_") for name in option.names)
    }  # fmt: skip
    return tuple((key, repr(value)) for key, value in one.serve.items() if (key in silent) is quiet)
