"""How an engine's server is called: each engine's is in its folder (``launch.SERVER``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.engines.folders import having, part_of
from kvplan.named import NamedTuple
from kvplan.record import Json, record

FLAGS = Path(__file__).parent / "data" / "server_flags.tsv"
"""Written by scripts/make_server_flags.py from the engines' own parsers."""
HEADER = "engine\tflags\tvalues\tmemory\tuntil"
Serve = dict[str, object]
"""A plan's ``serve:``: the engine's flags with underscores."""


class ServerFlag(NamedTuple):
    """One option of a server. names: its spellings, the long one first. values: how many words follow, or
    ``?``, ``+``, ``*``. memoryless: it changes no byte of the GPU's memory. until: the first release whose
    server does not start with it; empty: the newest has it."""

    names: tuple[str, ...]
    values: str
    memoryless: bool
    until: str = ""

    def negated(self, spelled: str) -> bool:
        """Whether a spelling says no: ``--no-x`` of an option that has ``--x`` too."""
        return spelled.startswith("--no-") and "--" + spelled.removeprefix("--no-") in self.names


VISIBLE = "visible"


@record()
class Server:
    """How an engine's server is started."""

    engine: str
    starts: tuple[tuple[str, ...], ...]
    """the words before its own (``vllm serve``); of a Python module the words after ``python``"""
    model: tuple[str, ...]
    """the options that name the model"""
    images: tuple[str, ...]
    """parts of the names of container images that have it (after a slash: how the last part of the name
    begins); such an image starts it without a word"""
    tagged: tuple[str, ...] = ()
    """the ends of the names of those whose tags are the engine's releases"""
    positional: bool = False
    """the model may also stand without one"""
    count: Callable[[str], int | None] = lambda text: int(text) if text.lstrip("-").isdigit() else None
    """a number as the server reads it, None where it is none (``32k``)"""
    translate: Callable[[Serve, Json], tuple[str, ...]] = lambda serve, options: ()
    """what of the options another form in a plan has; it takes (``serve``, the options by their long name)
    and gives the long names that it could not say. Among the options stands `VISIBLE`, where something
    says how many GPUs it sees."""
    translated: tuple[str, ...] = ()
    """Long names of the options that `translate` reads."""
    options_file: str | None = None
    """The option that names a YAML file with more of them."""
    ignored: tuple[tuple[str, str], ...] = ()
    """(a long option, why it changes nothing): said, not dropped."""
    renamed: tuple[tuple[str, str], ...] = ()
    """(an option of a wrapper that starts it, its own)."""
    environment: tuple[tuple[str, str], ...] = ()
    """(variable, the flag that it sets)."""
    variables: tuple[str, ...] = ()
    """How the names of the engine's own variables begin."""
    quiet: tuple[str, ...] = ()
    """Those, without that beginning, which change no byte of the GPU's memory; ``*`` stands for any end."""
    objects: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(a translated option that is an object, its keys that decide figures)."""
    worded: tuple[str, ...] = ()
    """Switches that took ``true`` or ``false`` as a word of their own."""
    optional: tuple[str, ...] = ()
    """Options of which an empty value says as much as none."""
    a_gpu_each: tuple[str, ...] = ()
    """Options with a value for each GPU, of which 0 leaves one out."""
    package: str = ""
    """The Python package that has it, as pip names it."""
    calls: tuple[str, ...] = ()
    """Its classes of Python whose keywords are the server's options."""
    in_charts: bool = False
    """The charts and custom resources of Kubernetes start this one where they name no command."""
    door: str | None = None
    """The program that it is, which starts the engine by itself (`kvplan.engines.doors`)."""
    title: str = ""
    flags: tuple[ServerFlag, ...] = ()
    """A program's options, which are in no table."""


@cache
def servers() -> Mapping[str, Server]:
    """Engine → its server, and program → its own."""
    found = {engine: part.SERVER for engine, part in having("launch").items()}
    programs = (one for part in having("launch").values() for one in getattr(part, "PROGRAMS", ()))
    return {**found, **{one.door: one for one in programs}}


def server_of_variables(environment: Iterable[str]) -> Server | None:
    """The program whose own variables are among these names (``OLLAMA_KV_CACHE_TYPE``); None of none's."""
    names = tuple(environment)
    programs = (one for one in servers().values() if one.door is not None and one.variables)
    return next((one for one in programs if any(name.startswith(one.variables) for name in names)), None)


def table_of(server: Server) -> Mapping[str, ServerFlag]:
    """Every spelling of every option of a server."""
    if server.door is None:
        return flags_of_server(server.engine)
    return {name: flag for flag in server.flags for name in flag.names}


@cache
def flags_of_server(engine: str) -> Mapping[str, ServerFlag]:
    """Every spelling of every option of an engine's server."""
    found: dict[str, ServerFlag] = {}
    header, *lines = FLAGS.read_text(encoding="utf-8").splitlines()
    assert header == HEADER
    for line in lines:
        name, names, values, memory, *until = line.split("\t")
        if name == engine:
            flag = ServerFlag(tuple(names.split()), values, memory == "none", *until)
            found.update(dict.fromkeys(flag.names, flag))
    return found


@cache
def paths_of_options(engine: str) -> Mapping[str, str]:
    """Path of keys in the engine's options file (``kv_cache_config.dtype``) → the flag of a plan."""
    part = part_of(engine, "command")
    if part is None:
        return {}
    table = part.TABLE
    entries = {**table.settings, **table.kept}
    names = {setting: flag for flag, setting in part_of(engine, "flags").NAMES.items()}
    return {one.flag: names.get(name, name) for name, one in entries.items() if one.in_file}


def config_override(serve: Serve, given: object, spelled: str) -> tuple[str, ...]:
    """An override of config.json: its length, as ``config_length``; other keys are what is left."""
    found = as_object(given)
    if found is None:
        return (spelled,)
    text = found.get("text_config")
    keys = {**found, **(text if isinstance(text, dict) else {})}
    length = keys.pop("max_position_embeddings", None)
    keys.pop("text_config", None)
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        serve["config_length"] = length
    return tuple(f"{spelled}.{key} {json.dumps(value)}" for key, value in keys.items())


def as_object(text: object) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    if isinstance(text, dict):
        return text
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def server_in_charts() -> Server:
    """The server that charts start without a command."""
    return next(server for server in servers().values() if server.in_charts)
