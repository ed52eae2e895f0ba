"""The model that a server's words mean: a hub id, a card's whole name, a file or a folder; never a guess."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from kvplan.errors import KvplanError
from kvplan.files.cards.find import is_whole_name
from kvplan.files.cards.gguf_names import gguf_file
from kvplan.files.folders import exists
from kvplan.later import regex

_SCHEMES = (
    "hf://", "huggingface://", "https://huggingface.co/", "huggingface.co/", "https://hf.co/", "hf.co/",
    "modelscope://", "ms://",
)  # fmt: skip
_HUB_ID = regex(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9]", re.ASCII)
_PATH = regex(r"[/~.\\]|[A-Za-z]:[\\/]", re.ASCII)
_ADDRESS = regex(r"[a-z][a-z0-9+.-]*://", re.ASCII)
_CACHED = regex(r"models--([\w.-]+?)--([\w.-]+)", re.ASCII)
_PLACEHOLDER = regex(
    r"<.*>|\{\{|\}\}|\[.*\]|%.*%|@\w+@|\.\.\.|…|x{3,}|todo|tbd"
    r"|(?:.*[/_ -])?(?:your|my)(?:[/_ -].*)?|.*path[/_]to[/_].*|.*/x{3,}"
    r"|(?:hf[_-])?model(?:s?[_-](?:name|id|path|uri))?|.*(?:change|replace)[_-]?(?:me|with).*|.*placeholder.*"
    r"|(?:org|owner|repo|namespace)/(?:name|model|repo)",
    re.IGNORECASE,
)
_DOWNLOAD = regex(
    r"(?:hf|huggingface-cli|modelscope)\s+download\s+(?:--\S+\s+)*?['\"]?([\w.-]+/[\w.-]+)"
    r"|snapshot_download\(\s*(?:repo_id\s*=\s*)?['\"]([\w.-]+/[\w.-]+)"
    r"|--model[-_]uri[= ]['\"]?((?:[a-z0-9]+://)?[\w./-]+)"
    r"|((?:s3|gs|tos|oss|az)://[\w./-]+)"
    r"|git\s+clone\s+(?:-\S+\s+)*https://huggingface\.co/([\w.-]+/[\w.-]+)",
    re.ASCII,
)
WAY_ON = "--model ID: a hub id or a card's name"


def check_no_placeholder(text: str, spelled: str, way_on: str = WAY_ON) -> None:
    """Raises KvplanError(placeholder) for words that stand for a name: ``<model>``, ``YOUR_MODEL``, ``xxx``,
    ``{{ .Values.model }}``, nothing. way_on: beside filling it in."""
    if text.strip() and not _PLACEHOLDER.match(text) and not text.lower().startswith("your"):
        return
    if "{{" in text:
        raise KvplanError(
            "placeholder", f"{spelled} is {text}, which another program fills in",
            help=("helm template CHART | kvplan check -", "kustomize build FOLDER | kvplan check -", way_on),
        )  # fmt: skip
    what = f"{text}, which somebody has still to fill in" if text.strip() else "empty"
    raise KvplanError("placeholder", f"{spelled} is {what}", help=way_on)


def model_of(
    text: str, beside: Path, spelled: str, names: Iterable[tuple[str, str]] = ()
) -> tuple[str, str | None]:
    """(the model as a plan names it, a note where it was read as something else).

    A hub id, also with its address; a card's whole name; a path that is here. Of another path the card that
    its folder is called after, else what ``names`` say of it: (a hub id, its source), of a download, of the
    name that clients ask for. Raises KvplanError(placeholder | no-model-named | unknown-model)."""
    text = text.replace('"', "").strip("' ")
    if not any(is_whole_name(part) for part in text.rstrip("/").split("/")[-1:] if "/" in text and part):
        check_no_placeholder(text, spelled)
    for head in _SCHEMES:
        if text.startswith(head):
            return _whole(text.removeprefix(head).partition("@")[0].rstrip("/")), None
    clean = text.rstrip("/")
    if re.search(r"\s", clean) and not _PATH.match(clean):
        raise KvplanError("no-model-named", f"{spelled} is {text}, which is no name of a model", help=WAY_ON)
    is_path = _PATH.match(clean) is not None or _ADDRESS.match(clean) is not None
    is_here = exists(Path(clean).expanduser()) or exists(beside / clean)
    bare_file = clean.endswith(".gguf") and "/" not in clean
    if is_here or not (is_path or bare_file):
        return (clean if is_here else _whole(clean)), None
    cached = _CACHED.search(clean)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}", None
    parts = PurePosixPath(clean.replace("\\", "/").rpartition("://")[2]).parts
    file = gguf_file(parts[-1]) if parts else None
    if file is not None:
        return file, f"{text} is not on this machine: read by its name, {file}"
    if bare_file or clean.endswith(".gguf"):
        note = f"{text} is not on this machine: read by its name, {parts[-1]}"
        return parts[-1], None if bare_file else note
    if clean.startswith("oci://"):
        parts = tuple(one.removeprefix("modelcar-") for part in parts for one in part.split(":"))
    return _of_folder(text, parts, dict.fromkeys(names))


def _of_folder(text: str, parts: tuple[str, ...], names: Iterable[tuple[str, str]]) -> tuple[str, str]:
    said = [(named, source) for name, source in names if (named := _named(name)) is not None]
    for part in reversed(parts):
        if is_whole_name(part):
            same = (name for name, _ in said if name.rpartition("/")[2].lower() == part.lower())
            name = next(same, part)
            return name, f"{text} is not on this machine: read as the model {name}"
    if said:
        name, source = said[0]
        return name, f"{text} is not on this machine: read as the model {name}, {source}"
    raise KvplanError(
        "no-model-named", f"{text} is not on this machine, and nothing says which model lies there",
        help=WAY_ON,
    )  # fmt: skip


def _named(text: str) -> str | None:
    """A hub id or a card's whole name; of an address the last of its parts that is one."""
    if _ADDRESS.match(text):
        parts = reversed(text.rpartition("://")[2].split("/"))
        return next((part for part in parts if part and is_whole_name(part)), None)
    return text if _HUB_ID.fullmatch(text) or (text and is_whole_name(text)) else None


def _whole(name: str) -> str:
    """The name, unless it is only how a card's begins. Raises KvplanError(unknown-model)."""
    from kvplan.files.cards.index import find_targets, target_id

    begun = [] if is_whole_name(name) else find_targets(name)
    if not begun:
        return name
    near = ", ".join(target_id(one) for one in begun[:3])
    hub = (f"--model hf:{name} reads its config.json from the hub",) if "/" in name else ()
    raise KvplanError(
        "unknown-model", f"no card has the name {name} in full",
        help=(f"names that begin so: {near}", *hub, WAY_ON),
    )  # fmt: skip


def downloads_in(text: str) -> list[tuple[str, str]]:
    """(hub id, where it is said) of the repositories that a text fetches."""
    found = dict.fromkeys(next(filter(None, match.groups())) for match in _DOWNLOAD.finditer(text))
    return [(one, "which it downloads") for one in found]
