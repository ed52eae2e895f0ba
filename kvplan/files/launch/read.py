"""The servers behind a word of a command line (a command in one word, or the path of a manifest), and their
drafts, as far as kvplan can read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from kvplan.architectures.config.drafts import method_named
from kvplan.engines.launch import servers
from kvplan.errors import KvplanError
from kvplan.files.json_input import SHOWN_STDIN, check_text, read_limited
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.found import Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.manifest import is_manifest, launches_in
from kvplan.files.launch.programs import MODELFILE, gathered, launch_of_modelfile
from kvplan.files.launch.starts import engines_of, starts_in
from kvplan.files.launch.unknown import is_open
from kvplan.files.sources import open_model
from kvplan.plans.serve import flag_for
from kvplan.record import replace

_SETTING = "speculative"

SUFFIXES = (".yaml", ".yml")
SCRIPTS = (".sh", ".bash", ".service", ".bat", ".cmd", ".ps1")
_WINDOWS = (".bat", ".cmd", ".ps1")
COMMAND = "command"
_NO_MANIFEST = ("no-server", "bad-yaml", "yaml-too-large")
_PLAN = re.compile(rb"^kvplan:", re.MULTILINE)


def is_command(word: str) -> bool:
    """Whether a word is a whole command that starts a server: ``"vllm serve Qwen/Qwen3-32B -tp 2"``."""
    return any(char.isspace() for char in word) and _starts_one(word)


def is_modelfile(word: str) -> bool:
    """Whether a word is the path of one of Ollama's: ``Modelfile``, ``Modelfile.coder``,
    ``coder.modelfile``."""
    name = Path(word).name
    return name.startswith(MODELFILE) or name.lower().endswith(f".{MODELFILE.lower()}")


def title_of(word: str) -> str:
    """The name in reports and files: a path, or ``a command`` (in whose words a key may stand)."""
    return f"a {COMMAND}" if is_command(word) else word


def is_launch(word: str) -> bool:
    """Whether a word is a command, or the path of a script or manifest that starts a server."""
    if is_command(word) or is_modelfile(word):
        return True
    if not word.lower().endswith((*SUFFIXES, *SCRIPTS)):
        return False
    path = Path(word)
    try:
        content = read_limited(path)
    except (KvplanError, OSError):
        return False
    if word.lower().endswith(SCRIPTS):
        return True
    return _PLAN.search(content) is None and is_manifest(content, shown=word)


def is_launch_text(content: bytes) -> bool:
    """As `is_launch`, of what standard input holds: no plan, and no model's config."""
    is_json = content.lstrip()[:1] == b"{"
    if _PLAN.search(content) is not None or (is_json and b'"apiVersion"' not in content):
        return False
    return is_manifest(content, shown=SHOWN_STDIN) or _starts_one(content.decode("utf-8", "replace"))


def decoded(content: bytes) -> str:
    """A text that may be of any tool."""
    return content.decode("utf-8-sig", "replace")


def start_text(word: str) -> str:
    """The text in which the places of a command, a script or a manifest stand; nothing where it cannot be
    read."""
    if is_command(word):
        return word
    try:
        return decoded(read_limited(Path(word)))
    except KvplanError:
        return ""


def launches_of(word: str, *, engine: str | None = None, broken: list[Broken] | None = None) -> list[Launch]:
    """The servers that a command, a script or a manifest starts, in its order.

    engine: ``vllm@0.32`` in place of the release that an image's tag says. broken: takes the objects of a
    manifest whose server cannot be read, which else raise. Raises KvplanError: bad-command, bad-yaml,
    no-server, no-model-named, bad-flag …"""
    if is_command(word):
        return _of_text(word, COMMAND, engine, Path())
    path = Path(word)
    content = read_limited(path)
    check_text(content, word)
    if is_modelfile(word):
        return [launch_of_modelfile(content.decode("utf-8", "replace"), name=path.name)]
    if word.lower().endswith(SCRIPTS):
        return _of_text(_as_shell(path, content), path.stem, engine, path.parent)
    return launches_in(content, shown=word, engine=engine, beside=path.parent, broken=broken)


def _as_shell(path: Path, content: bytes) -> str:
    """A script as words of a shell: of a systemd unit its variables and what it starts; of Windows' scripts
    with their own line continuations, slashes for backslashes and ``set``."""
    text = content.decode("utf-8", "replace")
    suffix = path.suffix.lower()
    if suffix == ".service":
        joined = re.sub(r"\\\r?\n", " ", text)
        found = re.findall(r"^(Environment|ExecStart)=[-@:+!]*(.+)$", joined, re.MULTILINE)
        return "\n".join(f"export {said}" if key == "Environment" else said for key, said in found)
    if suffix in _WINDOWS:
        text = re.sub(r"[\^`]\r?\n", " ", text).replace("\\", "/")
        text = re.sub(r"^\s*\$env:(\w+)\s*=", r"export \1=", text, flags=re.MULTILINE | re.IGNORECASE)
        text = re.sub(r"^\s*(?:@|rem\b.*|::.*)", "", text, flags=re.MULTILINE | re.IGNORECASE)
        return re.sub(r"%(\w+)%", r"${\1}", text)
    return text


def launches_of_text(
    text: str, *, engine: str | None = None, shown: str = SHOWN_STDIN, broken: list[Broken] | None = None
) -> list[Launch]:
    """As `launches_of`, of a text that is a manifest, a script or a command."""
    try:
        return launches_in(text, shown=shown, engine=engine, broken=broken)
    except KvplanError as error:
        if error.code not in _NO_MANIFEST or not _starts_one(text):
            raise
    return _of_text(text, COMMAND, engine, Path())


def _starts_one(text: str) -> bool:
    try:
        return bool(starts_in(text))
    except KvplanError:
        return False


def _reader_beside(folder: Path) -> Callable[[str], str | None]:
    """Reads a file that a script names by a path below its own folder."""

    def read(path: str) -> str | None:
        place = PurePosixPath(path)
        if place.is_absolute() or ".." in place.parts or is_open(path):
            return None
        try:
            content = read_limited(folder / place)
        except (KvplanError, OSError, ValueError):
            return None
        return None if b"\0" in content else decoded(content)

    return read


def _of_text(text: str, name: str, engine: str | None, beside: Path) -> list[Launch]:
    shown = name if name == COMMAND else f"./{name}"
    starts = gathered(engines_of(starts_in(text, beside=_reader_beside(beside), script=shown)))
    if not starts:
        raise KvplanError(
            "no-server", f"nothing in {name} starts a server of {', '.join(servers())}",
            help="for example: vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2",
        )  # fmt: skip
    several = len(starts) > 1
    return [
        launch_of(start, name=f"{name}-{place}" if several else name, engine=engine, beside=beside)
        for place, start in enumerate(starts, 1)
    ]


def with_known_draft(launch: Launch) -> Launch:
    """The server without the model of a draft that cannot be read: the draft's method is kept, whose figures
    are then an estimate, and a note says so."""
    name = flag_for(launch.engine, _SETTING)
    entry = launch.serve.get(name) if name is not None else None
    draft = entry.get("model") if isinstance(entry, dict) else None
    if name is None or not isinstance(entry, dict) or not isinstance(draft, str) or _is_readable(draft):
        return launch
    kept = {"method": method_named(draft), **{key: one for key, one in entry.items() if key != "model"}}
    note = (
        f"the draft {draft} is not a model that kvplan knows: its weights and cache are an estimate from"
        f" its method, {kept['method']}; model: in {name} takes its config.json or hf:{draft}"
    )
    return replace(launch, serve={**launch.serve, name: kept}, notes=(*launch.notes, note))


def _is_readable(draft: str) -> bool:
    try:
        open_model(draft)
    except KvplanError:
        return False
    return True
