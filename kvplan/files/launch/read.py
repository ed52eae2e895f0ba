"""The servers behind a word of a command line (a command in one word, or the path of a manifest), and their
drafts, as far as kvplan can read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from kvplan.architectures.config.drafts import method_named
from kvplan.engines.launch import servers
from kvplan.errors import KvplanError
from kvplan.files.cards.gguf_names import gguf_file
from kvplan.files.folders import is_file
from kvplan.files.json_input import SHOWN_STDIN, check_text, read_limited
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.kinds import TextReader, text_reader_of
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.manifest import is_manifest, launches_in
from kvplan.files.launch.others import engine_named
from kvplan.files.launch.programs import MODELFILE, launch_of_modelfile
from kvplan.files.launch.scripts import manifests_in, of_shell, script
from kvplan.files.launch.starts import starts_in
from kvplan.files.sources import open_model
from kvplan.later import regex
from kvplan.masking import remember
from kvplan.plans.serve import flag_for
from kvplan.record import replace

_SETTING = "speculative"

SUFFIXES = (".yaml", ".yml")
COMMAND = "command"
VARIED = (".conf", ".env")
"""Ends of files that are read only where their text starts a server."""
_NO_MANIFEST = ("no-server", "bad-yaml", "yaml-too-large")
_PLAN = regex(rb"^kvplan:", re.MULTILINE)


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
    """Whether a word is a command, or the path of a file that starts a server, or may."""
    if is_command(word) or is_modelfile(word):
        return True
    path, plain = Path(word), word.lower().endswith(SUFFIXES)
    if not (plain or _may_be_text(path)):
        return False
    try:
        content = read_limited(path)
    except (KvplanError, OSError):
        return False
    if not plain:
        return b"\0" not in content and text_reader_of(path.name, decoded(content)) is not None
    return _PLAN.search(content) is None and is_manifest(content, shown=word)


def _may_be_text(path: Path) -> bool:
    """Whether a file is worth opening: one of a kind that is known by its name, or one without an end or
    with an end of many kinds."""
    if text_reader_of(path.name, "") is not None:
        return True
    return (not path.suffix or path.suffix in VARIED) and is_file(path)


def is_launch_text(content: bytes) -> bool:
    """As `is_launch`, of what standard input holds: no plan, and no model's config."""
    is_json = content.lstrip()[:1] == b"{"
    if _PLAN.search(content) is not None or (is_json and b'"apiVersion"' not in content):
        return False
    text = decoded(content)
    if text_reader_of("", text) is not None:
        return True
    return is_manifest(content, shown=SHOWN_STDIN) or _starts_one(text)


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


def launches_of(
    word: str, *, engine: str | None = None, broken: list[Broken] | None = None, instead: str | None = None
) -> list[Launch]:
    """The servers that a command, a script or a manifest starts, in its order.

    engine: ``vllm@0.32`` in place of the release that an image's tag says. broken: takes what of several
    cannot be read, which else raises. instead: another text at the file's place. Raises KvplanError:
    bad-command, bad-yaml, no-server, no-model-named, bad-flag …"""
    if is_command(word):
        remember(word if instead is None else instead)
        return _of_text(word if instead is None else instead, Beside(COMMAND, engine), broken)
    path = Path(word)
    content = read_limited(path) if instead is None else instead.encode()
    check_text(content, word)
    text = decoded(content)
    remember(text)
    if is_modelfile(word):
        return [launch_of_modelfile(text, name=path.name)]
    reader = text_reader_of(path.name, text)
    if reader is not None:
        return _of_text(text, Beside(path.stem, engine, path.parent, path.name), broken, reader)
    return launches_in(content, shown=word, engine=engine, beside=path.parent, broken=broken)


def launches_of_text(
    text: str, *, engine: str | None = None, shown: str = SHOWN_STDIN, broken: list[Broken] | None = None
) -> list[Launch]:
    """As `launches_of`, of a text that is a manifest, a script or a command."""
    remember(text)
    beside = Beside(COMMAND, engine)
    if (reader := text_reader_of("", text)) is not None:
        return _of_text(text, beside, broken, reader)
    try:
        return launches_in(text, shown=shown, engine=engine, broken=broken)
    except KvplanError as error:
        if error.code not in _NO_MANIFEST or not _starts_one(text):
            raise
    return _of_text(text, beside, broken)


def _starts_one(text: str) -> bool:
    try:
        return bool(starts_in(text))
    except KvplanError:
        return False


def _of_text(
    text: str, beside: Beside, broken: list[Broken] | None, reader: TextReader = of_shell
) -> list[Launch]:
    """The servers of a text. Raises KvplanError(no-server …)."""
    found: Iterable[Launch | Broken] = reader(text, beside)
    launches = [one for one in found if isinstance(one, Launch)]
    failed = [one for one in found if isinstance(one, Broken)]
    for manifest in manifests_in(text, beside) if reader in (of_shell, script) else ():
        with suppress(KvplanError):
            launches += launches_in(
                manifest,
                shown=beside.file or beside.name,
                engine=beside.engine,
                beside=beside.folder,
                broken=failed,
            )
    if failed and (broken is None or not (launches or len(failed) > 1)):
        raise failed[0].error
    (broken if broken is not None else []).extend(failed)
    if not (launches or failed):
        raise _no_server(text, beside.file or beside.name)
    return launches


def _no_server(text: str, shown: str) -> KvplanError:
    other = engine_named(text)
    if other is not None:
        return KvplanError("no-server", f"{shown} starts {other}, and kvplan has no rules for it")
    return KvplanError(
        "no-server", f"nothing in {shown} starts a server of {', '.join(servers())}",
        help="for example: vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2",
    )  # fmt: skip


def with_known_draft(launch: Launch) -> Launch:
    """The server without the model of a draft that cannot be read: the draft's method is kept, whose figures
    are then an estimate, and a note says so."""
    name = flag_for(launch.engine, _SETTING)
    entry = launch.serve.get(name) if name is not None else None
    draft = entry.get("model") if isinstance(entry, dict) else None
    if name is None or not isinstance(entry, dict) or not isinstance(draft, str) or _is_readable(draft):
        return launch
    file = gguf_file(PurePosixPath(draft.replace("\\", "/")).name) if draft.endswith(".gguf") else None
    if file is not None and _is_readable(file):
        note = f"the draft {draft} is not on this machine: read by its name, {file}"
        serve = {**launch.serve, name: {**entry, "model": file}}
        return replace(launch, serve=serve, notes=(*launch.notes, note))
    kept = {"method": method_named(draft), **{key: one for key, one in entry.items() if key != "model"}}
    note = (
        f"the draft {draft} is not a model that kvplan knows: its weights and cache are an estimate from"
        f" its method, {kept['method']}; model: in {name} takes its config.json or hf:{draft}"
    )
    return replace(launch, serve={**launch.serve, name: kept}, notes=(*launch.notes, note))


def _is_readable(draft: str) -> bool:
    try:
        open_model(draft, as_draft=True)
    except KvplanError:
        return False
    return True
