"""Files of text that start servers: scripts and jobs, units, Dockerfiles, Makefiles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path, PurePosixPath

from kvplan.engines.launch import server_of_variables
from kvplan.errors import KvplanError
from kvplan.files.json_input import read_limited
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import MOST_GPUS, Launch, first_devices, sees_all
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.models import downloads_in
from kvplan.files.launch.programs import gathered
from kvplan.files.launch.starts import Start, engines_of, split_words, starts_in, starts_of, with_image
from kvplan.files.launch.trees import count_of, pairs
from kvplan.files.launch.unknown import is_open, shown
from kvplan.later import regex
from kvplan.masking import remember
from kvplan.named import NamedTuple
from kvplan.record import replace

Found = list[Launch | Broken]
_SHEBANG = regex(r"#!.*\b(?:ba|z|da|a|k)?sh\b")
_DIRECTIVE = regex(r"^#(?:SBATCH|FLUX:)[ \t]+(.*?)(?:[ \t]#.*)?$", re.MULTILINE)
_JOB_SIZES = {
    "--nodes": "nodes", "-N": "nodes", "--gres": "gres", "--gpus-per-node": "gres", "--gpus": "gpus",
    "-G": "gpus", "--gpus-per-task": "per_task", "--ntasks-per-node": "tasks", "--constraint": "kind",
    "-C": "kind",
}  # fmt: skip


def file_reader(folder: Path) -> Callable[[str], str | None]:
    """Reads a file that a script names by a path below its own folder."""

    def read(path: str) -> str | None:
        place = PurePosixPath(path)
        if place.is_absolute() or ".." in place.parts or is_open(path):
            return None
        try:
            content = read_limited(folder / place)
        except (KvplanError, OSError, ValueError):
            return None
        if b"\0" in content:
            return None
        text = content.decode("utf-8-sig", "replace")
        remember(text)
        return text

    return read


class Extra(NamedTuple):
    """Facts of the surroundings of some servers, where their own words do not say them."""

    gpu: str | None = None
    gpus: int | None = None
    replicas: int = 1
    notes: tuple[str, ...] = ()

    def around(self, launch: Launch) -> Launch:
        """The server in them."""
        return replace(
            launch, gpu=launch.gpu or self.gpu, gpus=launch.gpus or self.gpus,
            replicas=launch.replicas if launch.replicas > 1 else self.replicas,
            notes=(*launch.notes, *self.notes),
        )  # fmt: skip


NOTHING_MORE = Extra()
NOWHERE: Mapping[str, str] = {}


def of_starts(
    starts: Iterable[Start], beside: Beside, text: str = "", extra: Extra = NOTHING_MORE, *,
    together: bool = False,
) -> Found:  # fmt: skip
    """Each server, or what is wrong with it. text: in which they stand. together: what is not ended runs at
    once, on one machine."""
    pins = _pins(text)
    pinned = [replace(_filled_in(one, beside), pin=pins.get(one.server.package)) for one in starts]
    settled = gathered(engines_of(pinned))
    several = len(settled) > 1
    names = [f"{beside.name}-{place}" if several else beside.name for place in range(1, len(settled) + 1)]
    found: Found = []
    for name, start in zip(names, settled, strict=True):
        one = _launch(start, name, beside, [*start.names, *downloads_in(text)])
        one = extra.around(one) if isinstance(one, Launch) else one
        one = on_first(one, start) if together and isinstance(one, Launch) and start.here else one
        same = found[-1] if found else None
        if isinstance(one, Launch) and isinstance(same, Launch) and _is_another(one, same):
            found[-1] = replace(same, replicas=same.replicas + 1, devices=(*same.devices, *one.devices))
        else:
            found.append(one)
    if len(found) == 1 and several and isinstance(found[0], Launch):
        found[0] = replace(found[0], name=beside.name)
    return found


_RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def on_first(launch: Launch, start: Start) -> Launch:
    """A server that is given no GPUs of its own, on the first of its machine."""
    if launch.devices or launch.wish is not None or not sees_all(dict(start.environment)):
        return launch
    sizes = [size for name in _RANKS if isinstance(size := launch.serve.get(name, 1), int)]
    devices = first_devices(min(launch.gpus or prod(sizes), MOST_GPUS))
    return replace(launch, devices=tuple(f"{start.machine}/{one}" for one in devices))


def _pins(text: str) -> dict[str, str]:
    """Package → the release that a text installs, where it is one."""
    found: dict[str, set[str]] = {}
    for package, release in re.findall(r"([A-Za-z_-]+)(?:\[[\w,-]+\])?==(\d+\.\d+(?:\.\d+)?)", text):
        found.setdefault(package.lower().replace("-", "_"), set()).add(release)
    return {package: next(iter(one)) for package, one in found.items() if len(one) == 1}


def _filled_in(start: Start, beside: Beside) -> Start:
    """The start with the variables of its files (``docker run --env-file``)."""
    read = file_reader(beside.folder)
    texts = {path: read(path) for path in start.variables}
    known = [pair for text in texts.values() for pair in variables_in(text or "").items()]
    missing = [path for path, text in texts.items() if text is None]
    notes = [f"{shown(path)}, a file of variables, is not here" for path in missing]
    return replace(
        start, environment=(*known, *start.environment), missing=(*start.missing, *missing),
        notes=(*start.notes, *notes),
    )  # fmt: skip


def _launch(start: Start, name: str, beside: Beside, names: Sequence[tuple[str, str]]) -> Launch | Broken:
    try:
        return launch_of(start, name=name, engine=beside.engine, beside=beside.folder, names=names)
    except KvplanError as error:
        return Broken(name, error)


def _is_another(one: Launch, same: Launch) -> bool:
    """Whether a server is the one before it once more, on GPUs of its own: as a loop starts them."""
    serve: dict[str, object] = {**one.serve}
    serve.update((key, same.serve[key]) for key in ("port", "host") if key in same.serve)
    alike = same == replace(
        one, name=same.name, replicas=same.replicas, devices=same.devices, serve=serve
    )  # fmt: skip
    return alike and bool(one.devices) and not one.shares_with(same)


def of_shell(
    text: str, beside: Beside, environment: Mapping[str, str] | None = None, image: str | None = None,
    extra: Extra = NOTHING_MORE, *, together: bool = False,
) -> Found:  # fmt: skip
    """The servers that a shell text starts, in a container of an image where there is one."""
    known, sizes = _job(text)
    starts = starts_in(
        text, {**known, **(environment or {})}, beside=file_reader(beside.folder),
        script=f"./{beside.file or beside.name}",
    )  # fmt: skip
    given = extra._replace(gpu=extra.gpu or sizes.gpu, gpus=extra.gpus or sizes.gpus)
    return of_starts([with_image(one, image) for one in starts], beside, text, given, together=together)


def manifests_in(text: str, beside: Beside) -> list[str]:
    """The YAML texts that a script hands on in a here-document, or writes to a file; the graphs that it
    serves (``dynamo serve GRAPH -f FILE``)."""
    if "<<" not in text and not _GRAPH.search(text):
        return []
    from kvplan.files.launch.shell.run import read

    try:
        reading = read(text, {}, beside=file_reader(beside.folder))
    except KvplanError:
        return []
    handed = [one.stdin for one in reading.calls if one.stdin and one.words[0] in ("kubectl", "oc", "docker")]
    written = [one for path, one in reading.files.items() if path.endswith((".yaml", ".yml"))]
    graphs = [found for one in reading.calls if (found := _graph(one.words, beside, reading.files))]
    kept = [one for one in (*handed, *written) if re.search(r"^(?:kind|services):", one, re.MULTILINE)]
    return [shown(one) for one in (*kept, *graphs)]


_GRAPH = regex(r"dynamo\s+serve\s")


def _graph(words: Sequence[str], beside: Beside, files: Mapping[str, str]) -> str | None:
    """The file of a graph's components that ``dynamo serve`` is told."""
    if [PurePosixPath(one).name for one in words[:2]] != ["dynamo", "serve"]:
        return None
    path = next((after for one, after in pairwise(words) if one in ("-f", "--config", "--file")), "")
    return files.get(path) or file_reader(beside.folder)(path) if path else None


def starts_of_script(
    words: Sequence[str], environment: Mapping[str, str], read: Callable[[str], str | None],
    mounts: Mapping[str, str] = NOWHERE,
) -> list[Start]:  # fmt: skip
    """The servers of a script in a container that lies beside, under its own name or mounted from there."""
    for place, word in enumerate(words[:3]):
        path = PurePosixPath(word)
        folder = next((target for target in mounts if word.startswith(f"{target}/")), None)
        source = mounts.get(word) or (folder and mounts[folder] + word[len(folder) :]) or path.name
        text = read(source) if path.suffix in (".sh", "", ".bash") and "/" in word else None
        if text is not None:
            return starts_in(text, environment, beside=read, arguments=words[place + 1 :])
    return []


def _job(text: str) -> tuple[dict[str, str], Extra]:
    """(Slurm's variables, kind and number of GPUs) of a job's directives
    (slurm.schedmd.com/sbatch.html: INPUT and OUTPUT ENVIRONMENT VARIABLES)."""
    rows = _DIRECTIVE.findall(text)
    if not rows:
        return {}, Extra()
    said = {
        _JOB_SIZES[option]: value
        for row in rows
        for option, value in pairwise(re.split(r"[ =]+", row.strip()))
        if option in _JOB_SIZES
    }
    nodes = count_of(said.get("nodes", "1").partition("-")[0]) or 1
    tasks = count_of(said.get("tasks")) or 1
    kinds, each = _asked(said, nodes, tasks)
    known = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": nodes * tasks}
    known |= {"SLURM_GPUS_ON_NODE": each, "SLURM_GPUS_PER_NODE": each} if each else {}
    kind = next((one for one in kinds if one not in ("gpu", "")), said.get("kind", ""))
    gpu = gpu_of_label(kind) if kind else None
    sizes = Extra(gpu, each * nodes if each else None)
    return {name: str(number) for name, number in known.items()}, sizes


def _asked(said: Mapping[str, str], nodes: int, tasks: int) -> tuple[list[str], int | None]:
    """(words for the kind, number on a node) of the GPUs that a job asks for: on each node, for all of it, or
    for each task."""
    key = next((one for one in ("gres", "gpus", "per_task") if one in said), "")
    *kinds, number = said.get(key, "").split(",")[0].split(":")
    each = count_of(number)
    if each is None or key == "gres":
        return kinds, each
    return kinds, -(-each // nodes) if key == "gpus" else each * tasks


def is_script(name: str, text: str) -> bool:
    """A shell script or a job, by the end of its name or its first line."""
    ends = (".sh", ".bash", ".zsh", ".ksh", ".sbatch", ".slurm", ".job", ".env.sh")
    return name.lower().endswith(ends) or _SHEBANG.match(text) is not None or name == "Procfile"


def script(text: str, beside: Beside) -> Found:
    if beside.file == "Procfile":
        text = re.sub(r"^[\w-]+:[ \t]*", "", text, flags=re.MULTILINE)
    return of_shell(text, beside, together=True)


_SERVICE = regex(r"^\[Service\][ \t]*$", re.MULTILINE)
_VARIABLE_ROWS = regex(r"(?:[ \t]*(?:#.*|(?:export[ \t]+)?[A-Za-z_]\w*=.*)?(?:\r?\n|\Z))+", re.ASCII)


def is_unit(name: str, text: str) -> bool:
    """A unit, or a drop-in of one (``ollama.service.d/override.conf``); of a text without a name its
    heading says it."""
    headed = name.endswith(".conf") or not name
    return name.endswith((".service", ".container")) or (headed and _SERVICE.search(text) is not None)


def unit(text: str, beside: Beside) -> Found:
    """A unit of systemd, or of Podman's Quadlet (man systemd.exec, podman-systemd.unit)."""
    rows = re.findall(r"^(\w+)[ \t]*=[ \t]*(.*)$", re.sub(r"\\\r?\n\s*", " ", text), re.MULTILINE)
    environment: dict[str, str] = {}
    starts: list[Start] = []
    read = file_reader(beside.folder)
    image = next((value for key, value in rows if key == "Image"), None)
    missing: list[str] = []
    for key, value in rows:
        if key == "Environment":
            environment.update(_pairs(split_words(value)))
        elif key == "EnvironmentFile":
            path = value.removeprefix("-")
            held = read(path) or read(PurePosixPath(path).name)
            missing += [path] if held is None else []
            environment.update(variables_in(held or ""))
    for key, value in rows:
        if key in ("ExecStart", "Exec"):
            words = split_words(value.lstrip("-@:+!") if key == "ExecStart" else value)
            starts += starts_of(words, environment, image)
    said = any(key in ("ExecStart", "Exec") for key, _ in rows)
    if not said:
        starts = starts_of([], environment, image) if image is not None else _of_a_program(environment)
    return of_starts([replace(one, missing=tuple(missing)) for one in starts], beside, text)


def is_variables(name: str, text: str) -> bool:
    """A file of variables alone, some of them a program's that starts engines."""
    rows = name.endswith((".env", ".conf"))
    return rows and _VARIABLE_ROWS.fullmatch(text) is not None and bool(_of_a_program(variables_in(text)))


def variables(text: str, beside: Beside) -> Found:
    """Variables for a program's server, of which another file says how it is started."""
    return of_starts(_of_a_program(variables_in(text)), beside, text)


def _of_a_program(environment: Mapping[str, str]) -> list[Start]:
    """The server of the program that reads variables of such names; none where no program does."""
    server = server_of_variables(environment)
    return [] if server is None else [Start(server, (), tuple(environment.items()))]


def variables_in(text: str) -> dict[str, str]:
    """The variables of a file of ``NAME=value`` rows."""
    return _pairs(text.splitlines())


def _pairs(rows: Iterable[str]) -> dict[str, str]:
    """``NAME=value`` of each row, without quotes."""
    found = {}
    for row in rows:
        name, equals, value = row.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith(("#", ";")):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def is_dockerfile(name: str, text: str) -> bool:
    return name.startswith(("Dockerfile", "Containerfile")) or name.lower().endswith(".dockerfile")


class Build(NamedTuple):
    """A Dockerfile's last stage; a text is told to a shell."""

    image: str | None
    entry: tuple[str, ...]
    command: tuple[str, ...]
    environment: dict[str, str]


def build_of(text: str, arguments: object = None) -> Build:
    """The last stage's ``CMD`` and ``ENTRYPOINT`` in its image (docs.docker.com/reference/dockerfile).
    arguments: of the build, before the defaults of ``ARG``."""
    joined = re.sub(r"\\[ \t]*\r?\n(?:[ \t]*#.*\n)*", " ", text)
    given = dict(pairs(arguments))
    known: dict[str, str] = {}
    said: dict[str, tuple[str, ...]] = {}
    stages: dict[str, tuple[str | None, dict[str, tuple[str, ...]]]] = {}
    image: str | None = None
    for key, value in re.findall(r"^[ \t]*([A-Za-z]+)[ \t]+(.+?)[ \t]*$", joined, re.MULTILINE):
        key = key.upper()
        if key == "FROM":
            base, _, alias = re.sub(r"--\S+\s+", "", value).partition(" ")
            image, said = stages.get(base, (_filled(base, known), {}))
            said = dict(said)
            stages[alias.rpartition(" ")[2]] = (image, said)
        elif key in ("ENV", "ARG"):
            words = split_words(value)
            rows = words if "=" in words[0] else [f"{words[0]}={' '.join(words[1:])}"] if words[1:] else []
            known.update({name: _filled(one, known) for name, one in _pairs(rows).items()})
            known.update({name: one for name, one in given.items() if key == "ARG" and name in value})
        elif key in ("CMD", "ENTRYPOINT"):
            said[key] = _exec_form(value)
    return Build(image, said.get("ENTRYPOINT", ()), said.get("CMD", ()), known)


def dockerfile(text: str, beside: Beside) -> Found:
    made = build_of(text)
    words = [*made.entry, *made.command]
    starts = starts_of(words, made.environment, None if made.entry else made.image)
    starts = starts or starts_of_script(words, made.environment, file_reader(beside.folder))
    return of_starts([with_image(one, made.image) for one in starts], beside, text)


def _exec_form(value: str) -> tuple[str, ...]:
    """A JSON list; any other text is told to a shell."""
    try:
        words = json.loads(value)
    except ValueError:
        words = None
    return tuple(map(str, words)) if isinstance(words, list) else ("/bin/sh", "-c", value)


def _filled(text: str, known: Mapping[str, str]) -> str:
    from kvplan.files.launch.shell.run import expanded

    return expanded(text, known) if "$" in text else text


def is_makefile(name: str, text: str) -> bool:
    return name in ("Makefile", "makefile", "GNUmakefile", "justfile", "Justfile") or name.endswith(".mk")


def makefile(text: str, beside: Beside) -> Found:
    """The recipes of a Makefile, whose variables count in each; ``$$`` is one sign for the shell."""
    joined = re.sub(r"\\\r?\n[ \t]*", " ", text)
    known: dict[str, str] = {}
    recipes: list[str] = []
    for row in joined.splitlines():
        match = re.match(r"(?:export[ \t]+)?(\w+)[ \t]*(\?|:{0,3}|\+|!)=[ \t]*(.*?)[ \t]*(?:#.*)?$", row)
        if row.startswith("\t") or (row.startswith("  ") and "justfile" in beside.file.lower()):
            recipes.append(row.strip().lstrip("@-+"))
        elif match is not None:
            value = match[3].strip("\"'") if ":=" in row and "justfile" in beside.file.lower() else match[3]
            known[match[1]] = f"{known.get(match[1], '')} {value}".strip() if match[2] == "+" else value
    shell = "\n".join(_made(row, known) for row in recipes)
    return of_shell(shell, beside)


def _made(text: str, known: Mapping[str, str], depth: int = 0) -> str:
    """A recipe with make's variables; what it does not know stays as a shell's variable."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if name in known and depth < 8:
            return _made(known[name], known, depth + 1)
        return f"${{{name}}}"

    marked = text.replace("$$", "\ue005")
    return re.sub(r"\$\((\w+)\)|\$\{(\w+)\}|\{\{[ ]*(\w+)[ ]*\}\}", value, marked).replace("\ue005", "$")
