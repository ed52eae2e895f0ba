"""The server that a command starts, in the words of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from kvplan.engines import choose_engine
from kvplan.engines.base import parse_version
from kvplan.engines.folders import title_of
from kvplan.engines.launch import (
    VISIBLE,
    Serve,
    Server,
    ServerFlag,
    as_object,
    flags_of_server,
    paths_of_options,
    table_of,
)
from kvplan.engines.release_rules import reached
from kvplan.errors import KvplanError
from kvplan.files.folders import exists
from kvplan.files.launch.given import OPTION, is_left_open
from kvplan.files.launch.launch import Launch, devices_seen
from kvplan.files.launch.models import WAY_ON, check_no_placeholder, model_of
from kvplan.files.launch.programs import launch_of_program
from kvplan.files.launch.starts import Start, version_of
from kvplan.files.launch.unknown import is_open, is_placeholder, is_whole, shown, unknowns
from kvplan.files.launch.words import Option, take_apart
from kvplan.later import regex
from kvplan.masking import is_secret
from kvplan.plans.serve import EngineFlags, Flag, flags_of
from kvplan.record import replace

_NEARLY = 0.9
"""How alike two names are, of 1: no option that a release has dropped is so near to one that there is."""


def launch_of(
    start: Start,
    *,
    name: str,
    engine: str | None = None,
    beside: Path = Path(),
    held: Mapping[str, str] | None = None,
    names: Sequence[tuple[str, str]] = (),
) -> Launch:
    """The server that a command starts.

    engine: ``vllm@0.32``, before what the image says. beside: the folder from which its files are meant.
    held: the files that its manifest brings with it, by name (ConfigMaps). names: (a hub id, its source),
    which count where the model is a folder that is not here. A model that nothing names is no error yet:
    `Launch.unnamed`. Raises KvplanError(unresolved-variable | bad-flag).
    """
    server = start.server
    if server.door is not None:
        return launch_of_program(start, name=name, engine=engine)
    spec, flags, notes = _release_of(start, engine)
    older = _dropped(start, spec)
    if older is not None:
        read = partial(launch_of, name=name, beside=beside, held=held, names=names)
        launch = read(start, engine=older[0])
        return replace(launch, notes=(older[1], *launch.notes))
    files = {PurePosixPath(path).name: text for path, text in start.files}
    reader = _Reader(server, flags, dict(start.environment), beside, {**files, **(held or {})})
    reader.missing = start.missing
    rest = reader.read(start.words)
    model: str | None = reader.model or _positional(server, rest) or reader.model_of_file
    devices = start.devices or devices_seen(reader.environment)
    seen = start.gpus or len(devices) or reader.each or None
    if seen is not None:
        reader.options[VISIBLE] = seen
    reader.finish()
    notes += reader.notes + _host_notes(start)
    unnamed = None
    try:
        model, read_as = reader.model_named(model, name, names)
        notes += [read_as] if read_as is not None else []
    except KvplanError as error:
        unnamed = error
    unread = dict.fromkeys(
        shown(one) for one in (*reader.unread, *rest, *_variables(start), *_memory_variables(start))
    )
    launch = Launch(
        name, spec, model or "", reader.serve, gpu=start.gpu, gpus=seen, unnamed=unnamed,
        unread=tuple(unread), notes=tuple(notes), devices=tuple(f"{start.machine}/{one}" for one in devices),
    )  # fmt: skip
    read = partial(launch_of, name=name, engine=engine, beside=beside, held=held, names=names)
    for condition, other in start.others:
        said = _difference(launch, other, read)
        where = shown(f"where {condition}")
        launch = replace(launch, notes=(*launch.notes, *(f"{where}: {one}" for one in said)))
    return replace(launch, notes=(*launch.notes, *map(shown, start.notes)))


def _dropped(start: Start, spec: str) -> tuple[str, str] | None:
    """(The newest release that has every option, why that one), where an option went with a later one and
    nothing says which release it is.

    Raises KvplanError(unknown-flag) where something does: its server does not start."""
    options = take_apart(start.server, start.words).options
    gone = {one.spelled: one.flag.until for one in options if one.flag is not None and one.flag.until}
    engine, _, release = spec.partition("@")
    versions = choose_engine(engine).engine.versions
    release = release or start.version or ""  # one that is not known here is what the image says all the same
    gone = {word: until for word, until in gone.items() if reached(release or versions[-1], until)}
    if not gone:
        return None
    words, first = ", ".join(gone), min(gone.values(), key=parse_version)
    last = [version for version in versions if not reached(version, first)]
    if not last or release or start.is_newest:
        which = release or f"{versions[-1]} (the newest: {start.image})"
        raise KvplanError(
            "unknown-flag",
            f"{title_of(engine)} {which} has no option {words}: it went with {first}",
            help=(
                f"leave out {words}",
                *(f"-e {engine}@{one}, where the server is older" for one in last[-1:]),
            ),
        )
    return f"{engine}@{last[-1]}", (
        f"{words}: {title_of(engine)} {last[-1]} is the last release with it, and is taken"
        f" (-e {engine}@… says another)"
    )


_MEMORY = regex(
    r"NVSHMEM_SYMMETRIC_SIZE|NCCL_BUFFSIZE|NCCL_(?:MIN|MAX)_(?:NCHANNELS|CTAS)|NCCL_CUMEM\w*|NCCL_NVLS\w*"
    r"|LMCACHE_(?:\w*SIZE|\w*LOCAL_CPU|\w*BUFFER\w*)|MOONCAKE_\w*SIZE|MC_\w*SIZE|DEEPEP_\w+|NIXL_\w*SIZE"
    r"|SGLANG_\w*BUFFER\w*|UCCL_\w*SIZE"
)
"""Variables that take memory of the GPU or of the host beside the engine."""


def _memory_variables(start: Start) -> list[str]:
    """``NAME=value`` of the variables that take memory and are in no figure."""
    read = dict(start.server.environment)
    return [
        f"{name}={value}"
        for name, value in start.environment
        if _MEMORY.fullmatch(name) and name not in read and not _HOST.fullmatch(name)
    ]


_HOST = regex(
    r"LMCACHE_(?:LOCAL_CPU|MAX_LOCAL_CPU_SIZE|LOCAL_DISK|MAX_LOCAL_DISK_SIZE)"
    r"|MOONCAKE_(?:GLOBAL_SEGMENT|LOCAL_BUFFER)_SIZE|MC_STORE_\w*SIZE"
)
"""Variables that take memory of the host, or of a disk, and none of the GPU: LMCache/LMCache
lmcache/v1/config.py; sgl-project/sglang 0.5.23 mem_cache/storage/mooncake_store/."""


def _host_notes(start: Start) -> list[str]:
    said = [f"{name}={value}" for name, value in start.environment if _HOST.fullmatch(name)]
    return [f"{', '.join(said)}: memory of the host, none of the GPU"] if said else []


def _variables(start: Start) -> list[str]:
    """The engine's own variables that no rule reads."""
    server = start.server
    return [
        name if is_secret(name) else f"{name}={value}"
        for name, value in start.environment
        if name.startswith(server.variables)
        and name not in dict(server.environment)
        and not _is_quiet(server, name, value)
    ]


def _is_quiet(server: Server, variable: str, value: str) -> bool:
    """Whether one of the engine's variables changes no byte, whatever it is, or with this value."""
    ends = [variable.removeprefix(one) for one in server.variables if variable.startswith(one)]
    words = [word for end in ends for word in (end, f"{end}={value}")]
    return any(fnmatchcase(word, one) for word in words for one in server.quiet)


def _positional(server: Server, rest: list[str]) -> str | None:
    """The model that stands without an option: of two words, one of which may come to none, the other."""
    if not (server.positional and rest):
        return None
    known = [one for one in rest if not is_whole(one)]
    word = known[0] if len(known) == 1 else rest[0]
    rest.remove(word)
    return word


def _difference(launch: Launch, other: Start, read: Callable[[Start], Launch]) -> list[str]:
    """Settings with which a command that is another on a condition of its script differs."""
    try:
        found = read(other)
        if found.unnamed is not None:
            return [found.unnamed.message]
    except KvplanError as error:
        return [error.message]
    said = [
        f"its {what} is {two}"
        for what, one, two in (("model", launch.model, found.model), ("engine", launch.engine, found.engine))
        if one != two
    ]
    said += [
        f"{flag} is {found.serve[flag]}" if flag in found.serve else f"no {flag}"
        for flag in {**launch.serve, **found.serve}
        if launch.serve.get(flag) != found.serve.get(flag)
    ]
    return said + [one for one in found.unread if one not in launch.unread]


def _release_of(start: Start, engine: str | None) -> tuple[str, EngineFlags, list[str]]:
    """(Engine and release, its flags, which release was taken where none that is known was named)."""
    server, version = start.server, start.version
    newest = flags_of(server.engine).spec.partition("@")[2]
    if version is not None and int(version.partition(".")[0]) > int(newest.partition(".")[0]):
        version = None  # of CUDA, or of a model
    spec = engine or (f"{server.engine}@{version}" if version else server.engine)
    notes: list[str] = []
    try:
        flags = flags_of(spec)
    except KvplanError:
        if engine is not None:
            raise
        notes.append(f"{spec} is not a release that kvplan knows: the newest one that it knows is taken")
        spec, flags = server.engine, flags_of(server.engine)
    if engine is None and version is None and start.image is not None and version_of(start.image):
        notes.append(
            f"the tag of {start.image} says no release of {server.engine}: the newest one that kvplan knows"
            f" is taken (-e {server.engine}@… says another)"
        )
    return spec, flags, notes


def _own_name(server: Server, word: str) -> str:
    """A wrapper's option by the server's own name."""
    name, equals, value = word.partition("=")
    return dict(server.renamed).get(name, name) + equals + value


class _Reader:
    """Collects the plan's ``serve:`` from options."""

    def __init__(
        self,
        server: Server,
        flags: EngineFlags,
        environment: Mapping[str, str],
        beside: Path,
        held: Mapping[str, str],
    ) -> None:
        self.held = held
        self.server, self.flags, self.environment, self.beside = server, flags, environment, beside
        self.serve: Serve = {}
        self.options: dict[str, Any] = {}
        self.unread: list[str] = []
        self.notes: list[str] = []
        self.model: str | None = None
        self.model_of_file: str | None = None
        self.files: list[str] = []
        self.missing: tuple[str, ...] = ()
        self.each = 0  # GPUs that have a value each
        self.late = False  # what is said now counts only where nothing was said before

    def read(self, given: Sequence[str]) -> list[str]:
        """Takes the options of the command, of its files, of its variables; gives the words that are left."""
        words = take_apart(self.server, [_own_name(self.server, word) for word in given])
        for option in words.options:
            self.take(option)
        self.late = True
        for path in self.files:
            self.file(path)
        for variable, flag in self.server.environment:
            if variable in self.environment:
                self.variable(variable, flag)
        return list(words.rest)

    def take(self, option: Option) -> None:
        flag = option.flag
        if flag is None:
            self.unknown(option)
            return
        named = next((one for one in flag.names if one in self.server.translated), None)
        ignored = [why for one, why in self.server.ignored if one in flag.names]
        if ignored:
            self.notes.append(f"{option.spelled}: {ignored[0]}")
            return
        known = next((one for one in map(self._flag, flag.names) if one is not None), None)
        if self.is_quiet(option, flag):
            return
        if any(one in self.server.model for one in flag.names):
            self.model = None if option.value is None else str(option.value)
            if named is not None:
                self.options[named] = option.value
        elif self.server.options_file in flag.names:
            self.files.append(str(option.value))
        elif named is not None:
            if not (self.late and named in self.options):
                self.options[named] = self.resolved(self.closed(named, option.value), option.spelled)
        elif known is not None:
            self.put(known, option.value, option.spelled)
        elif not flag.memoryless:
            self.unread.append(_shown(option))

    def closed(self, named: str, value: object) -> object:
        """The value of an option that is an object, without keys that no figure has and whose value nothing
        says."""
        decide = dict(self.server.objects).get(named)
        found = as_object(value) if decide is not None and _is_open(value) else None
        if found is None or decide is None:
            return value
        open_keys = [key for key, one in found.items() if key not in decide and _is_open(json.dumps(one))]
        kept = {key: one for key, one in found.items() if key not in open_keys}
        if open_keys:
            self.notes.append(
                f"{named}.{', '.join(open_keys)}: nothing says the value, which changes no figure"
            )
        return json.dumps(kept)

    def unknown(self, option: Option) -> None:
        """An option that the server has not, as far as is known."""
        name, equals, given = option.spelled.partition("=")
        if name in self.server.model:  # a server that takes it without an option, through a wrapper
            self.model = given or next(iter(option.value), None)
        else:
            self.check_spelling(name)
            whole = option.spelled if equals else " ".join((name, *option.value))
            self.unread.append(name if is_secret(name) else whole)

    def is_quiet(self, option: Option, flag: ServerFlag) -> bool:
        """Whether what an option says changes nothing: an empty value as good as none, an open one of what
        takes no memory. GPUs that have a value each are counted."""
        names, value = flag.names, option.value
        if any(one in self.server.a_gpu_each for one in names):
            values = value if isinstance(value, list) else re.split(r"[,/;]", str(value))
            self.each = sum(one.strip() not in ("", "0", "none") for one in values)
        if value == "" and any(one in self.server.optional for one in names):
            return True
        read = any(one in self.server.translated for one in names)
        return flag.memoryless and not read and _is_open(value)

    def check_spelling(self, name: str) -> None:
        """An option that the server has not and whose name is nearly that of one: its parser stops there.

        Raises KvplanError(unknown-flag).
        """
        from difflib import get_close_matches

        near = get_close_matches(name, table_of(self.server), 1, _NEARLY)
        # A wrapper's own option has its prefix before the server's: --dyn-reasoning-parser.
        if name.startswith("--") and near and not name.endswith(near[0].lstrip("-")):
            raise KvplanError(
                "unknown-flag",
                f"{title_of(self.server.engine)} has no option {name}",
                help=f"did you mean {near[0]}?",
            )

    def _flag(self, name: str) -> Flag | None:
        """The plan's flag of a long option."""
        plain = name.lstrip("-").replace("-", "_")
        plain = plain if plain in self.flags.flags else self.flags.short.get(plain, plain)
        return self.flags.flags.get(plain) if name.startswith("--") else None

    def put(self, flag: Flag, value: object, spelled: str) -> None:
        """Raises KvplanError(bad-flag) for a value that the server would not take."""
        if not (self.late and flag.name in self.serve):
            self.serve[flag.name] = _typed(flag, self.resolved(value, spelled), self.server, spelled)

    def resolved(self, value: Any, spelled: str) -> Any:
        """Raises KvplanError(unresolved-variable | placeholder)."""
        way_on = WAY_ON if spelled in self.server.model else "write its value into the file"
        placed = isinstance(value, str) and is_placeholder(value)
        if placed or any(one.startswith(("<", "{{")) for one in unknowns(str(value))):
            check_no_placeholder(shown(str(value)), spelled, way_on)
        if _is_open(value):
            word = " ".join(map(shown, [value] if isinstance(value, str) else value))
            lacking = f" ({', '.join(self.missing)} is not here)" if self.missing else ""
            raise KvplanError(
                "unresolved-variable",
                f"{spelled} is {word}, and nothing says what that variable is{lacking}",
                help=_ways_on(value),
            )  # fmt: skip
        return value

    def model_named(
        self, model: str | None, name: str, names: Sequence[tuple[str, str]]
    ) -> tuple[str, str | None]:
        """(the model, a note), as `model_of`, which is told the name that clients ask for."""
        spelled = " or ".join(self.server.model)
        if model is None:
            who = "the command" if name == "command" else name
            raise KvplanError(
                "no-model-named", f"{who} names no model", help=(f"its own {spelled} names it", WAY_ON)
            )
        served = self.serve.get("served_model_name")
        called = [str(one) for one in (served if isinstance(served, list) else [served]) if one is not None]
        address = self.environment.get("STORAGE_URI", "")
        stored = [(address.removeprefix("hf://"), "its STORAGE_URI")] if address.startswith("hf://") else []
        said = (*stored, *names, *((one, "the name that clients ask for") for one in called))
        try:
            text = self.resolved(model, self.server.model[0])
        except KvplanError as error:
            error.help = tuple(dict.fromkeys((*error.help, WAY_ON)))
            raise
        return model_of(text, self.beside, self.server.model[0], said)

    def variable(self, variable: str, name: str) -> None:
        """A variable that sets a flag; an option on the command line counts before it."""
        value = self.environment[variable]
        long = f"--{name.replace('_', '-')}"
        ignored = dict(self.server.ignored).get(long)
        if ignored is not None:
            self.notes.append(f"{variable}: {ignored}")
        elif f"--{name.replace('_', '-')}" in self.server.model or name == "hf_repo":
            self.model = self.model or value
            if long in self.server.translated:
                self.options.setdefault(long, value)
        elif name in self.server_names():
            if name not in self.serve:
                flag = self.flags.flags.get(name)
                if flag is not None and f"--{name.replace('_', '-')}" not in self.server.translated:
                    self.put(flag, value, variable)
                else:
                    self.options.setdefault(f"--{name.replace('_', '-')}", value)
        else:
            self.unread.append(f"{variable}={value}")

    def server_names(self) -> set[str]:
        """The plan's flags and those that are translated."""
        return set(self.flags.flags) | {one.lstrip("-").replace("-", "_") for one in self.server.translated}

    def file(self, path: str) -> None:
        """More options from a YAML file: an options file of key paths, or the command's own options."""
        from kvplan.files.launch.loose import load_loose, load_loose_file

        place = Path(path)
        place = place if place.is_absolute() else self.beside / place
        if not exists(place) and (text := self.held.get(PurePosixPath(path).name)) is not None:
            for document in load_loose(text, name=path):
                self.keys(document)
            return
        if not exists(place):
            self.unread.append(f"{self.server.options_file} {path} (no such file here)")
            return
        for document in load_loose_file(place):
            self.keys(document)

    def keys(self, document: object) -> None:
        """The keys of an options file: those of the command line, or paths below one another."""
        if not isinstance(document, dict):
            self.unread.append(f"{self.server.options_file} (no keys in it)")
            return
        paths = paths_of_options(self.server.engine)
        table = flags_of_server(self.server.engine)
        for path, value in _flat(document, paths):
            plan = paths.get(path)
            known = self.flags.flags.get(plan or path.replace("-", "_"))
            long = "--" + path.replace("_", "-")
            row = table.get(long, table.get("--" + path))
            if path in ("model", "model_tag", "model-path", "model_path"):
                self.model_of_file = str(value)
            elif plan is not None and known is not None:
                self.put(known, value, path)
            elif row is not None:
                text = value if isinstance(value, (dict, bool, list)) or value is None else str(value)
                self.take(Option(long if long in table else "--" + path, row, text))
            elif long in self.server.translated:
                self.options.setdefault(long, value)
            elif known is not None:
                self.put(known, value, path)
            else:
                self.unread.append(f"{path}: {value}")

    def finish(self) -> None:
        self.unread += self.server.translate(self.serve, self.options)


_NAME = regex(r"\$[{(]?([A-Za-z_]\w*)|environ(?:\.get)?[\[(]['\"](\w+)|getenv\(['\"](\w+)", re.ASCII)


def _ways_on(value: object) -> list[str]:
    """How to say what an open value is: a variable of a shell, a manifest or Python by its name."""
    names = dict.fromkeys(
        found for match in _NAME.finditer(str(value)) if (found := next(filter(None, match.groups()), None))
    )
    given = [f"{OPTION} {name}=VALUE" for name in names if is_left_open(name)]
    return [f"{' '.join(given)}: its value"] if given else ["write its value into the file"]


def _is_open(value: object) -> bool:
    return any(
        is_open(one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)
    )


def _flat(document: dict[str, object], known: Mapping[str, str]) -> list[tuple[str, object]]:
    """(path, value): a mapping goes in one piece unless keys below it are known."""
    found: list[tuple[str, object]] = []
    for key, value in document.items():
        name = str(key)
        if isinstance(value, dict) and any(path.startswith(name + ".") for path in known):
            found += [(f"{name}.{inner}", entry) for inner, entry in value.items()]
        else:
            found.append((name, value))
    return found


def _shown(option: Option) -> str:
    value = option.value
    if value is None or isinstance(value, bool):
        return option.spelled
    return f"{option.spelled} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def _typed(flag: Flag, value: object, server: Server, spelled: str) -> object:
    """A word of a command as a plan writes the flag's value. Raises KvplanError(bad-flag)."""
    if isinstance(value, list) and flag.kind != "list":
        value = value[0] if len(value) == 1 else " ".join(map(str, value))
    wrong = KvplanError("bad-flag", f"{spelled} takes another value than {value!r}")
    if flag.kind == "switch":
        words = {"true": True, "false": False, "1": True, "0": False}
        said = value if isinstance(value, bool) else words.get(str(value).lower())
        if said is None:
            raise wrong
        return said
    if flag.kind == "kept":
        return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 10 else value
    if isinstance(value, bool) or value is None:
        raise wrong
    if flag.kind in ("count", "length", "longest", "size"):
        if flag.kind == "longest" and str(value) == "auto":
            return "auto"
        number = server.count(str(value))
        if number is None:
            raise wrong
        return number
    if flag.kind == "number":
        try:
            return float(str(value)) if not str(value).isdigit() else int(str(value))
        except ValueError:
            raise wrong from None
    if flag.kind == "list":
        return value if isinstance(value, list) else str(value).split(",")
    if flag.kind in ("speculative", "map"):
        entry = as_object(value) or _listed_pairs(value)
        if entry is None:
            raise wrong
        return entry
    return str(value)


def _listed_pairs(value: object) -> dict[str, int] | None:
    """``image=1,video=2``, as vLLM took an object until 0.9 (vllm/engine/arg_utils.py, nullable_kvs)."""
    pairs = [one.partition("=") for one in str(value).split(",")]
    found = {key.strip(): int(text) for key, _, text in pairs if key.strip() and text.strip().isdecimal()}
    return found if len(found) == len(pairs) else None
