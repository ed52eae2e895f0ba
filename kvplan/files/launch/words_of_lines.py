"""Lines of a launch file and what became of them, by their words alone: where no place is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvplan.engines.launch import flags_of_server, servers
from kvplan.files.launch.found import Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.machines import given_by, gpu_of
from kvplan.later import regex
from kvplan.plans.serve import flags_of

COUNTED, NOTHING, UNREAD, REFUSED = "counted", "changes nothing", "not read", "refused"
PARTLY = "counted in part"
"""A line in which something else was not read."""
_OPTION = regex(r"(?<![\w-])--?[A-Za-z][\w.-]*", re.ASCII)
_KEY = regex(r"['\"]?([A-Za-z][\w./-]*)['\"]?\s*:\s+([^,{}\[\]]*)", re.ASCII)
_WORD = regex(r"[\w./:@$+-]+")
_NUMBERS = frozenset(
    """image replicas replicaCount minReplicas maxReplicas minReplicaCount min_replicas num_replicas size
    parallelism nodeCount podGroupSize workerReplicas accelerators num_nodes instanceType resourceProfile
    requestGPU requestGPUType repository tag image_id accelerator_type tensor pipeline data
    dataLocal""".split()
)
"""Keys that say how many, on what, and which release."""


def by_words(rows: Sequence[str], launches: Sequence[Launch], broken: Sequence[Broken]) -> list[str]:
    """`COUNTED` | `NOTHING` | `UNREAD` | `REFUSED` of each line, or nothing where it says nothing of a
    server."""
    counted, quiet = _options(launches)
    unread = {word for one in launches for item in one.unread for word in _heads(item)}
    named = {word for one in launches for word in (one.model, *_read_as(one)) if word}
    wrong = {word for one in broken for word in (one.name, *_OPTION.findall(one.error.message))}
    return [_of_line(row, counted, quiet, unread, named, wrong) for row in rows]


def _of_line(
    row: str, counted: set[str], quiet: set[str], unread: set[str], named: set[str], wrong: set[str]
) -> str:
    if not row.strip() or row.lstrip().startswith(("#", "//", "---")):
        return ""
    options = {one.partition("=")[0] for one in _OPTION.findall(row)}
    keys = _KEY.findall(row)
    words = {*_WORD.findall(row), *options}
    plain = {one.partition("=")[0].rstrip(":,") for one in words}
    if unread & plain:
        return UNREAD
    if wrong & plain:
        return REFUSED
    if options & counted or any(one in row for one in named) or any(_counts(*one) for one in keys):
        return COUNTED
    if not options & quiet:
        return ""
    # The start itself: what it counts may stand in variables.
    return COUNTED if _starts(row) else NOTHING


def _starts(row: str) -> bool:
    """Whether an engine's server is started here."""
    words = f" {' '.join(row.split())} "
    return any(f" {' '.join(one)} " in words for server in servers().values() for one in server.starts)


def _counts(key: str, value: str) -> bool:
    """Whether a key says how many servers run, or on which GPUs."""
    plain = value.strip(" ,'\"[]{}")
    given = given_by({"limits": {key: plain}})
    return bool(plain) and (key in _NUMBERS or gpu_of({key: plain}) is not None or given.gpus is not None)


def _options(launches: Sequence[Launch]) -> tuple[set[str], set[str]]:
    """(options that a plan has, options that change no byte)."""
    counted, quiet = set[str](), set[str]()
    for one in launches:
        short = flags_of(one.engine).short
        for option in set(flags_of_server(one.engine.partition("@")[0]).values()):
            plain = {name.lstrip("-").replace("-", "_") for name in option.names}
            if any(short.get(name, name) in one.serve for name in plain):
                counted.update(option.names)
            elif option.memoryless:
                quiet.update(option.names)
    return counted, quiet


def _heads(item: str) -> list[str]:
    """The words under which something unread stands: ``--vllmConfig-blockSize 32`` is ``blockSize`` too."""
    first = re.split(r"[\s=]", item, maxsplit=1)[0].rstrip(":")
    key = re.match(r"--[a-z]+Config-(\w+)$|(?:[\w-]+\.)+([\w-]+)$", first)
    return [first, *filter(None, key.groups())] if key is not None else [first]


def _read_as(launch: Launch) -> list[str]:
    """The folder or address that was read as the model."""
    return [note.split(" is not on this machine")[0] for note in launch.notes if " is not on this m" in note]
