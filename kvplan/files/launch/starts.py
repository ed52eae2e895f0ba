"""Where in some words an engine's server is started: through shells, wrappers and container commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvplan.engines.dynamo import OWNER, engine_in
from kvplan.engines.launch import Server, servers
from kvplan.errors import KvplanError
from kvplan.files.launch import containers
from kvplan.files.launch.given import value_of
from kvplan.files.launch.models import downloads_in
from kvplan.files.launch.others import engine_named
from kvplan.files.launch.unknown import as_written, is_whole, shown, with_placeholders
from kvplan.later import regex
from kvplan.record import record, replace

if TYPE_CHECKING:
    from kvplan.files.launch.python_calls import Begun
    from kvplan.files.launch.shell.run import Call

SHELLS = ("sh", "bash", "zsh", "dash", "ash")
_ASSIGNMENT = regex(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_OF_A_FIELD = regex(r"\$\(([A-Za-z_]\w*)\)", re.ASCII)
"""A variable as Kubernetes writes it in ``args``."""
_TEXT = regex(r"-[a-zA-Z]*c[a-zA-Z]*")
_IMAGE_WORD = regex(r"(?:docker://|--image=)(.+)")
"""How Apptainer and ``kubectl run`` name an image."""
_TAG = regex(
    r"(?:^v?(\d+\.\d+(?:\.\d+)?)|[-_](?:v(\d+\.\d+(?:\.\d+)?)|(\d+\.\d+\.\d+)))(?=$|[-_.a-z+])", re.ASCII
)
"""A release in an image's tag; behind other words one with a ``v`` or of three parts, as ``2.5`` there may be
a model's."""
_REPACKED = ("lmcache/",)
"""Who puts an engine into images with tags of their own."""
_BESIDE = regex(
    r"rout(er|ing)|sidecar|schedul|picker|gateway|proxy|controller|operator|exporter|autoscal|bench|syncer"
    r"|-sim(?![a-z])|-cache-manager|dashboard|-epp"
)
"""In the names of images that stand beside a server and start none."""
_PYTHON = regex(r"python(\d(\.\d+)?)?|pypy3?|torchrun|accelerate|deepspeed", re.ASCII)
"""Programs that start a module with ``-m``."""
_PROGRAM = regex(rf"{_PYTHON.pattern}|{'|'.join(SHELLS)}|sleep|tail|node|ray", re.ASCII)
"""Programs that are no argument of an image's own server."""
_NO_START = frozenset(
    """echo printf pkill pgrep killall kill which type hash command ls grep rm cp mv ln chmod chown test [ [[
    cmake make ninja pip pip3 git curl wget cat systemctl journalctl tail head sed awk cd mkdir touch du stat
    file ps lsof apt apt-get brew trap alias export sleep wait log info warn error die usage""".split()
)
"""Commands in whose words a server's name starts none."""
_WRAPPERS = frozenset(
    """nohup exec sudo env nice numactl taskset time timeout setsid stdbuf srun mpirun mpiexec torchrun uv uvx
    poetry pipenv pixi conda micromamba mamba nsys ncu strace xvfb-run ssh kubectl oc apptainer singularity
    enroot chroot su doas runuser systemd-run flock ionice chrt prlimit dumb-init tini catchsegv unbuffer
    op infisical doppler dotenv accelerate gdb rlwrap then do else ! proxychains proxychains4 proot
    trtllm-llmapi-launch hipprof rocprof rocprofv3 start call docker podman nerdctl opentelemetry-instrument
    ddtrace-run jemalloc.sh caffeinate start-stop-daemon""".split()
)
"""Commands that start the one in their words."""
_TEXTS = frozenset("ssh tmux screen su sudo watch timeout eval sbatch script runuser flock parallel".split())
"""Commands that are given another as one word."""
_CONTAINERS = ("docker", "podman", "nerdctl")
_InArms = tuple["Start", tuple[tuple[int, str], ...]]
"""A server and the branches that it stands in, as `Call.arms`."""
_DETACHES = regex(r"--detach|-[a-zA-Z]*d[a-zA-Z]*")
MOST_BEFORE = 8
"""Words of a command before the program that it starts."""
_DEPTH = 8
MAX_WORDS = 4096


@record()
class Start:
    """A server that is started: its engine, the words after its own name, the variables it is given.
    image: of the container, where it is known. devices: of GPUs, as they are told to it. others: the start
    where a condition of the script is otherwise. missing: files with variables that are not here."""

    server: Server
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    image: str | None = None
    gpus: int | None = None
    gpu: str | None = None
    """its kind, where the text says it"""
    devices: tuple[str, ...] = ()
    machine: str = ""
    """where its devices are; of servers that never run together another each"""
    here: bool = False
    """on the GPUs that its machine shows to everything, unless it is given some"""
    others: tuple[tuple[str, Start], ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """(path, text) of the files that its script writes"""
    names: tuple[tuple[str, str], ...] = ()
    """(what a folder with the model is called elsewhere, where)"""
    variables: tuple[str, ...] = ()
    """Files that say more of its environment"""
    pin: str | None = None
    """the release that the text installs"""
    literal: bool = False
    """its words were read by no shell"""

    @property
    def version(self) -> str | None:
        """The release that the image's tag says, None where it says none (``latest``, a commit) and where
        the image is not the engine's own: ``llm-d-cuda:v0.9.0`` holds llm-d's 0.9.0."""
        tagged = self.image is not None and self.is_tagged_by_engine
        own = version_of(self.image or "") if tagged else None
        return own or _in_dynamo(self.image or "", self.server.engine) or self.pin

    @property
    def is_tagged_by_engine(self) -> bool:
        """Whether the tags of the image are the engine's releases: its own image, or one of that name in
        another registry."""
        name = _name_of(self.image or "")
        return any(f"/{name}".endswith(f"/{one}") for one in self.server.tagged) and not any(
            f"/{one}" in f"/{name}" for one in _REPACKED
        )

    @property
    def is_newest(self) -> bool:
        """Whether the image is the engine's own of no release but the newest."""
        tag = (self.image or "").rpartition("/")[2].partition("@")[0].partition(":")[2]
        return self.image is not None and self.is_tagged_by_engine and not self.pin and tag in ("", "latest")


def _in_dynamo(image: str, engine: str) -> str | None:
    """The engine's release in an image of Dynamo, whose tags are Dynamo's releases."""
    if f"/{OWNER}" not in f"/{_name_of(image)}":
        return None
    return engine_in(engine, image.rpartition("/")[2].partition("@")[0].partition(":")[2])


def version_of(image: str) -> str | None:
    """``0.11.0`` of ``vllm/vllm-openai:v0.11.0``; None of ``:latest``, a date, a commit."""
    last = image.rpartition("/")[2].partition("@")[0]
    _, colon, tag = last.partition(":")
    match = _TAG.search(tag) if colon else None
    said = match and next(one for one in match.groups() if one is not None)
    return said if said and len(said.split(".")[0]) < 4 else None


def starts_in(
    text: str, environment: Mapping[str, str] | None = None, *,
    beside: Callable[[str], str | None] | None = None, script: str = "script",
    arguments: Sequence[str] | None = None,
) -> list[Start]:  # fmt: skip
    """The servers that a shell text starts. beside: the text of a file that it reads, by its path.
    arguments: that it is given, None where nobody says. Raises KvplanError(bad-command)."""
    from kvplan.files.launch.shell.run import read

    known = environment or {}
    reading = read(
        text, known, beside=beside or (lambda path: None), script=script,
        arguments=None if arguments is None else tuple(arguments),
    )  # fmt: skip
    found: list[_InArms] = []
    ended = 0
    fetched = tuple(name for call in reading.calls for name in downloads_in(" ".join(call.words)))
    for call in reading.calls:
        kills = call.words[0] in ("kill", "pkill", "killall") or call.words[1:2] in (("stop",), ("rm",))
        ended += kills
        started = [
            (replace(
                one, missing=call.missing, files=tuple(reading.files.items()),
                machine=f"{one.machine}{ended or ''}", names=(*one.names, *fetched),
                here=_is_here(call.words),
            ), call.arms)
            for one in _of_call(call)
        ]  # fmt: skip
        found += started
        ended += bool(started) and _is_waited_for(call)
    for path, body in reading.files.items():  # that somebody else starts
        if path not in reading.started:
            found += [(one, ()) for one in _of_file(path, body, known)]
    if not found and reading.broken:
        raise KvplanError(
            "bad-command", f"this is no command line: line {reading.broken[0]} is no shell",
            help="quote the words as in a shell",
        )  # fmt: skip
    said = tuple(f"line {line} is no shell that kvplan reads" for line in reading.broken)
    said += tuple(
        f"{title} is started too, and kvplan has no rules for it" for title in _others(reading.calls)
    )
    return [replace(one, notes=(*one.notes, *said)) for one in _either(found)]


_ELSEWHERE = frozenset("ssh srun sbatch mpirun mpiexec torchrun kubectl oc ray modal sky parallel".split())
"""Programs that choose the machine, or the GPUs, of what they start."""
_LEAVING = frozenset("tmux screen sbatch systemd-run kubectl oc".split())
"""Programs that return while what they started runs."""


def _is_here(words: Sequence[str]) -> bool:
    """Whether a command's server runs on the script's own machine, and on the GPUs that it sees there."""
    return _ELSEWHERE.isdisjoint(PurePosixPath(one).name for one in words[:MOST_BEFORE])


def _is_waited_for(call: Call) -> bool:
    """Whether the script goes on only when the server has ended: it is neither sent aside nor detached."""
    names = [PurePosixPath(one).name for one in call.words[:MOST_BEFORE]]
    detached = any(name in _CONTAINERS for name in names) and (
        "start" in call.words or "compose" in call.words or any(map(_DETACHES.fullmatch, call.words))
    )
    return not (call.aside or detached or call.arms or not _LEAVING.isdisjoint(names))


def _others(calls: Sequence[Call]) -> list[str]:
    """The engines without rules that a script starts."""
    started = [one.words for one in calls if PurePosixPath(one.words[0]).name not in _NO_START]
    titles = (engine_named(" ".join(words)) for words in started if not _started(words, {}))
    return list(dict.fromkeys(one for one in titles if one is not None))


def _of_call(call: Call) -> list[Start]:
    """The servers of one command; of words that stand in branches alone a server each."""
    mine = _started(call.words, call.environment, stdin=call.stdin)
    kept = [(label, _started(words, known, stdin=call.stdin)) for label, words, known in call.others]
    found: list[Start] = []
    for place, start in enumerate(mine):
        others = tuple((label, one[place]) for label, one in kept if len(one) == len(mine))
        if call.open:
            said = "either this or another"
            found += [
                replace(one, notes=(*one.notes, f"{said}: {label}"), machine=f"{one.machine}{label}")
                for label, one in others
            ]
        else:
            found.append(replace(start, others=others))
    return found


def _of_file(path: str, text: str, known: Mapping[str, str]) -> list[Start]:
    """Servers of a script or a unit that a script wrote."""
    if path.endswith(".service"):
        rows = re.findall(r"^ExecStart=[-@:+!]*(.*)$", re.sub(r"\\\n\s*", " ", text), re.MULTILINE)
        return [one for row in rows for one in starts_of(split_words(row), known)]
    return _inside(text, known) if text.startswith("#!") or path.endswith(".sh") else []


def _either(found: Sequence[_InArms]) -> list[Start]:
    """Servers in several arms of one branch are told apart: one of them is started."""
    arms: dict[int, set[str]] = {}
    for _, inside in found:
        for place, label in inside:
            arms.setdefault(place, set()).add(label)
    settled = []
    for start, inside in found:
        chosen = [(label, len(arms[place])) for place, label in inside if len(arms[place]) > 1]
        said = [f"one of {number} servers of a branch: this one where {label}" for label, number in chosen]
        machine = start.machine + "".join(label for label, _ in chosen)
        settled.append(replace(start, notes=(*start.notes, *said), machine=machine))
    return settled


def starts_of(
    words: Sequence[str], environment: Mapping[str, str] | None = None, image: str | None = None
) -> list[Start]:
    """The servers that some words start which no shell reads: a manifest's. image: whose entry point takes
    the words, where nothing in them starts one."""
    known = dict(environment or {})
    given = [with_fields(one, known) for one in words]
    return [
        replace(one, words=tuple(_literal(word, known) for word in one.words)) if one.literal else one
        for one in _started(given, known, image=image, literal=True)
    ]


def with_fields(word: str, known: Mapping[str, str]) -> str:
    """A word with the variables that a manifest writes as ``$(NAME)``, as far as they are known."""

    def value(match: re.Match[str]) -> str:
        found = known.get(match[1])
        given = value_of(match[1]) if found is None else found
        return match[0] if given is None else given

    return _OF_A_FIELD.sub(value, word)


def _literal(word: str, known: Mapping[str, str]) -> str:
    """A word in which a shell's variables stand although no shell reads it."""
    if "$" not in word:
        return word
    from kvplan.files.launch.shell.run import expanded

    return expanded(word, known)


def _started(
    words: Sequence[str], environment: Mapping[str, str], *, image: str | None = None, depth: int = 0,
    stdin: str | None = None, literal: bool = False,
) -> list[Start]:  # fmt: skip
    known, words = _assignments(words[:MAX_WORDS], environment)
    if not words or depth > _DEPTH or words[0].startswith("-"):
        return _of_image(words, known, image, literal)
    first = PurePosixPath(words[0]).name
    if first in _NO_START:
        return []
    for place, word in enumerate(words):
        if (match := _ASSIGNMENT.fullmatch(word)) is not None and first in _WRAPPERS:
            known[match[1]] = match[2]
        if word.startswith("--container-image="):  # of Slurm's pyxis
            image = word.partition("=")[2].replace("#", "/")
        if PurePosixPath(word).name in _CONTAINERS:
            return _container(words[place + 1 :], known, depth)
        if (named := _IMAGE_WORD.fullmatch(word)) is not None and server_of_image(named[1]) is not None:
            after = [one for one in words[place + 1 :] if one != "--"]
            return _started(after, known, image=named[1], depth=depth + 1, literal=literal)
        told = _told(words, place, known, stdin)
        if told is not None:
            return [with_image(one, image) for one in told]
        found = _own(words, place)
        if found is not None and _is_start(words, place, found):
            own = tuple(words[found[1] :])
            return [Start(found[0], own, tuple(known.items()), image, literal=literal)]
    return _of_image(words, known, image, literal)


def _assignments(
    words: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, str], Sequence[str]]:
    """(variables, words) behind ``env`` and ``NAME=value`` before a command."""
    known, at = dict(environment), 0
    while at < len(words):
        match = _ASSIGNMENT.fullmatch(words[at])
        if match is not None:
            known[match[1]] = match[2]
        elif words[at] not in ("env", "exec", "command", "-"):
            break
        at += 1
    return known, words[at:]


def _told(
    words: Sequence[str], place: int, known: Mapping[str, str], stdin: str | None
) -> list[Start] | None:
    """Servers of a text that a command is told: behind a shell's ``-c``, ``ssh gpu1 'vllm serve …'``; None
    where there is none."""
    first, word = PurePosixPath(words[0]).name, words[place]
    if PurePosixPath(word).name in SHELLS:
        return _of_shell(words[place + 1 :], known, stdin)
    if _PYTHON.fullmatch(PurePosixPath(word).name) and (not place or first in _WRAPPERS):
        return _of_python(words[place + 1 :], known, stdin) or None
    if not (" " in word and place and first in _TEXTS):
        return None
    inside = _inside(word.removeprefix("--wrap="), known)
    if not inside and first == "sudo":
        return None
    host = " ".join(words[1:place]) if first == "ssh" else ""
    return [replace(one, machine=host) for one in inside]


def _of_python(words: Sequence[str], known: Mapping[str, str], text: str | None) -> list[Start]:
    """Servers of ``python -c TEXT``, and of ``python - arguments`` or ``python run.py arguments`` whose text
    is known."""
    at = next((at for at, one in enumerate(words) if one in ("-", "-c", "-m") or one[:1] != "-"), None)
    if at is not None and words[at] == "-m":
        return []
    if at is not None and words[at] == "-c":
        text, at = next(iter(words[at + 1 :]), None), at + 1
    if text is None:
        return []
    from kvplan.files.launch.python_calls import read_python

    arguments = [] if at is None else words[at + 1 :]
    try:
        return starts_of_begun(read_python(shown(text), "it", known, arguments).begun)
    except KvplanError:
        return []


def _of_image(
    words: Sequence[str], known: Mapping[str, str], image: str | None, literal: bool
) -> list[Start]:
    server = server_of_image(image) if image is not None else None
    if server is None or (words and _PROGRAM.fullmatch(PurePosixPath(words[0]).name)):
        return []
    return [Start(server, tuple(_after_entry(words)), tuple(known.items()), image, literal=literal)]


def _is_start(words: Sequence[str], place: int, found: tuple[Server, int]) -> bool:
    """Whether a server's name among a command's words starts it: behind a wrapper, in two words (``vllm
    serve``), or with a model behind it."""
    server, after = found
    first = PurePosixPath(words[0]).name
    if after - place > 1 or first in _WRAPPERS or (not place and first in {one[0] for one in server.starts}):
        return True
    return any(one.partition("=")[0] in server.model for one in words[after:])


def _of_shell(words: Sequence[str], known: Mapping[str, str], stdin: str | None) -> list[Start] | None:
    """Servers of ``bash -lc TEXT name arguments``, or the text that it is given; None where there is
    none."""
    for at, word in enumerate(words):
        if _TEXT.fullmatch(word):
            rest = list(words[at + 1 :])
            while rest and (rest[0] == "--" or re.fullmatch(r"-[a-z]+", rest[0])):
                rest.pop(0)
            if not rest:
                return None
            return starts_in(rest[0], known, arguments=rest[2:], script=next(iter(rest[1:]), "bash"))
        if not word.startswith("-"):
            break
    return _inside(stdin, known) if stdin is not None else None


def _inside(text: str, known: Mapping[str, str]) -> list[Start]:
    try:
        return starts_in(shown(text), known)
    except KvplanError:
        return []


def server_of_image(image: str) -> Server | None:
    """The engine whose server an image starts by itself: by parts of its name (``/vllm``: how the last part
    of its path begins)."""
    name = _name_of(image)
    last = name.rpartition("/")[2]
    if _BESIDE.search(last):
        return None
    for server in servers().values():
        if any(
            last.startswith(part[1:]) if part.startswith("/") else part in f"/{name}"
            for part in server.images
        ):
            return server
    return None


def _name_of(image: str) -> str:
    """An image without its tag and digest."""
    path = image.partition("@")[0]
    head, colon, tag = path.rpartition(":")
    return (head if colon and "/" not in tag else path).lower()


def _own(words: Sequence[str], place: int) -> tuple[Server, int] | None:
    """The server that the words at a place start, and where its own begin: a command by its name or path, a
    module behind ``python … -m``, a module's file."""
    word = words[place]
    first = PurePosixPath(word.replace("\\", "/")).name.removesuffix(".exe")
    runs_module = any(_PYTHON.fullmatch(PurePosixPath(one).name) for one in words[:place])
    dotted = word.removesuffix(".py").replace("/", ".") if word.endswith(".py") and runs_module else ""
    for server in servers().values():
        for start in server.starts:
            if start[0] == "-m" and (dotted.endswith(f".{start[1]}") or dotted == start[1]):
                return server, place + 1
            named = word == "-m" and runs_module if start[0] == "-m" else _is_called(first, start)
            if named and tuple(words[place + 1 : place + len(start)]) == start[1:]:
                return server, place + len(start)
    return None


def _is_called(name: str, start: Sequence[str]) -> bool:
    """Whether a program has a server's name, or that with a build behind it: ``llama-server-b4719``."""
    return name == start[0] or (len(start) == 1 and re.match(rf"{start[0]}[-_.]\w", name) is not None)


def _after_entry(words: Sequence[str]) -> Sequence[str]:
    """The arguments of an image's own entry point, which may be written out as ``serve``."""
    return words[1:] if words[:1] == ["serve"] else words


def _container(words: Sequence[str], known: dict[str, str], depth: int) -> list[Start]:
    """``docker run [options] IMAGE [words]``, ``docker exec NAME words``."""
    said = containers.options_of(words)
    if said is None:
        return []
    variables = {**known, **said.environment}
    image, after = said.image, said.words
    image = None if image is None or is_whole(image) else shown(image)
    server = None if image is None else server_of_image(image)
    if said.entry is not None:  # it is started instead of the image's own server
        found = _started([*said.entry, *after], variables, depth=depth + 1)
    elif server is None and not said.runs:
        found = _started(after, variables, depth=depth + 1)
    else:
        found = _started(after, variables, image=image, depth=depth + 1)
    return [
        replace(
            with_image(one, image), gpus=said.gpus or one.gpus, devices=said.devices, variables=said.files
        )
        for one in found
    ]


def starts_of_begun(begun: Sequence[Begun]) -> list[Start]:
    """The servers of a Python text: the engines that it makes, and those of the commands that it runs."""
    found: list[Start] = []
    for one in begun:
        for start in _of_begun(one):
            said = [note for word, note in one.otherwise if word in start.words]
            found.append(replace(
                start, gpu=start.gpu or one.gpu, gpus=start.gpus or one.gpus, notes=(*start.notes, *said),
            ))  # fmt: skip
    return found


def _of_begun(one: Begun) -> list[Start]:
    if one.server is not None:
        return [Start(one.server, one.words, notes=one.notes)]
    if one.text is not None:
        return starts_in(one.text, one.environment)
    starts = starts_of(one.words, one.environment)
    kept = [(label, starts_of((*one.words, *more), one.environment)) for label, more in one.others]
    return [
        replace(start, others=tuple((label, each[place]) for label, each in kept if len(each) == len(starts)))
        for place, start in enumerate(starts)
    ]


def with_image(start: Start, image: str | None) -> Start:
    """The start, in a container of that image unless it names one itself."""
    return start if start.image is not None or image is None else replace(start, image=image)


def split_words(text: str) -> list[str]:
    """The words of a text that no shell reads, taken apart at its spaces and quotes.

    Raises KvplanError(bad-command)."""
    joined = with_placeholders(re.sub(r"\\\r?\n", " ", text))
    try:
        return [as_written(one) for one in shlex.split(joined)]
    except ValueError as error:
        raise KvplanError(
            "bad-command", f"this is no command line: {error}", help="quote the words as in a shell"
        ) from error


_RANKS = ("--node-rank", "--node_rank", "--data-parallel-start-rank", "-dpr")


def engines_of(starts: Sequence[Start]) -> list[Start]:
    """The starts without those that join another as further nodes of one engine (``--node-rank 1``,
    ``--headless``): vllm 0.33 vllm/entrypoints/cli/serve.py, sglang 0.5.23 sglang/srt/server_args.py."""
    led = {(one.server, _model_words(one)) for one in starts if not _joins(one)}
    return [one for one in starts if not (_joins(one) and (one.server, _model_words(one)) in led)]


def _joins(start: Start) -> bool:
    """Whether a start is a further node of an engine."""
    for place, word in enumerate(start.words):
        name, equals, value = word.partition("=")
        given = value if equals else next(iter(start.words[place + 1 :]), "")
        if name == "--headless" or (name in _RANKS and given != "0"):
            return True
    return False


def _model_words(start: Start) -> tuple[str, ...]:
    """The words that name the model of a start."""
    words = start.words
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in start.server.model:
            return (value if equals else next(iter(words[place + 1 :]), ""),)
    return words[:1]
