"""Where a model comes from: a card, a file or directory, standard input, the hub, a GGUF header."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.model import SENTENCES, Model
from kvplan.record import record, replace

if TYPE_CHECKING:
    from kvplan.weights.facts import WeightSources

_CONFIG, _QUANT, _MODULES = "config.json", "hf_quant_config.json", "modules.json"
_HUB_ID = regex(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9]", re.ASCII)
_HUB_URL = regex(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:/.*)?", re.ASCII)
_CACHED = regex(r"models--(.+?)--(.+)")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".onnx", ".msgpack")


@record()
class Beside:
    """The weights of a config.json: headers or index in its directory, read when somebody asks for them."""

    directory: Path

    def sources(self, model: Model) -> WeightSources:
        from kvplan.architectures.weights import sources_of_model
        from kvplan.files.safetensors_header import read_checkpoint

        return sources_of_model(model, read_checkpoint(self.directory))


def open_model(name: str, *, revision: str | None = None, as_draft: bool = False) -> Model:
    """The model behind a name as a user types it. as_draft: it is to draft for another.

    ``-`` reads a config from standard input; ``hf:org/name`` asks the hub; a path that exists is a
    config.json, a directory that has one, a model card (.yaml) or a GGUF file; anything else is looked up
    among the cards.

    Raises KvplanError: unknown-model, no-such-file, not-a-file, bad-json, bad-config, missing-key …
    """
    if name.startswith("hf:"):
        from kvplan.files.hub.model import open_hub_model

        return open_hub_model(name.removeprefix("hf:"), revision=revision)
    if revision is not None:
        raise KvplanError(
            "bad-setting",
            f"a revision is asked for, but {name} is not read from the hub",
            help="write hf:org/name@revision",
        )
    if name == "-":
        return _from_stdin()
    if not name.strip():
        raise KvplanError(
            "unknown-model", "the model's name is empty", help="`kvplan list models` lists the cards"
        )
    path = _as_path(name)
    kind = _kind(path)
    if stat.S_ISDIR(kind):
        return _from_directory(path, name)
    suffix = path.suffix.lower()
    if kind or suffix in (".json", ".yaml", ".yml", ".gguf", *_WEIGHTS) or _looks_like_path(name):
        return _from_file(path, suffix, as_draft)
    return _from_cards(name)


def read_directory(path: Path) -> Model:
    """config.json in a directory (or the file itself), with hf_quant_config.json beside it where present.

    Raises KvplanError(no-such-file), naming what was looked for.
    """
    if stat.S_ISDIR(_kind(path)):
        file = path / _CONFIG
        if not os.path.lexists(file):
            raise _no_config(path)
        return _from_config(file)
    return _from_config(path)


def _from_stdin() -> Model:
    from kvplan.architectures.config.read import read_config
    from kvplan.files.json_input import SHOWN_STDIN, parse_json, read_standard_input

    raw = parse_json(read_standard_input(), name=SHOWN_STDIN)
    if _is_show(raw):
        return _from_show(raw, "-")
    _check_native(raw, SHOWN_STDIN)
    return read_config(raw, id="stdin", source="-")


def _from_directory(path: Path, name: str) -> Model:
    if not _kind(path / _CONFIG) and not _looks_like_path(name):
        # A folder of results may well be called like the model: the card is meant then.
        try:
            return _from_cards(name)
        except KvplanError as error:
            if error.code not in ("unknown-model", "ambiguous-model"):
                raise
    return read_directory(path)


def _from_file(path: Path, suffix: str, as_draft: bool) -> Model:
    if suffix in (".yaml", ".yml"):
        from kvplan.files.cards.find import read_card_file

        return read_card_file(path)
    if suffix in _WEIGHTS:
        raise KvplanError(
            "not-a-config",
            f"{path} holds weights, which do not say how the layers are built",
            help=f"give the {_CONFIG} that lies beside it, or its directory",
        )
    if suffix == ".gguf" or _starts_as_gguf(path):
        from kvplan.files.gguf.header import read_gguf

        return read_gguf(path, as_draft=as_draft)
    return _from_config(path)


def _starts_as_gguf(path: Path) -> bool:
    if not stat.S_ISREG(_kind(path)):
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError:
        return False


def _from_config(file: Path) -> Model:
    from kvplan.architectures.config.read import read_config
    from kvplan.files.json_input import parse_json, read_limited

    raw = parse_json(read_limited(file), name=str(file))
    if _is_show(raw):
        return _from_show(raw, str(file))
    _check_native(raw, str(file))
    beside = file.parent / _QUANT
    quant = None
    if file.name == _CONFIG and _kind(beside):
        quant = parse_json(read_limited(beside), name=str(beside))
    model = read_config(raw, id=_id_of(file), source=str(file), hf_quant_config=quant)
    if file.name != _CONFIG:
        return model
    if _pools(file.parent / _MODULES):
        model = replace(model, facts={**model.facts, SENTENCES: True})
    return replace(model, weights=Beside(file.parent))


def _is_show(raw: dict[str, object]) -> bool:
    """Whether it is Ollama's answer to /api/show, which has the keys of a GGUF file."""
    return isinstance(raw.get("model_info"), dict) and "model_type" not in raw


def _from_show(raw: dict[str, object], source: str) -> Model:
    from kvplan.files.gguf.shown import read_show

    return read_show(raw, source=source)


def _pools(modules: Path) -> bool:
    """Whether a list of sentence-transformers' modules has one that pools; a damaged one has none, as
    another file's fault is no config's."""
    from kvplan.files.json_input import parse_json, read_limited

    if not _kind(modules):
        return False
    try:
        found = parse_json(b'{"list": %b}' % read_limited(modules), name=str(modules))["list"]
    except KvplanError:
        return False
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return any(str(entry.get("type")).endswith(".Pooling") for entry in entries)


def _check_native(raw: dict[str, object], name: str) -> None:
    """Other JSON files that lie beside a config.json are told apart by their keys."""
    if "model_type" in raw or "architectures" in raw:
        return
    what = None
    if {"dim", "n_layers", "head_dim"} <= raw.keys() or {"dim", "n_layers", "n_heads"} <= raw.keys():
        what = "a params.json in the native format of its publisher"
    elif "weight_map" in raw:
        what = "the index of a checkpoint's files"
    elif "quantization" in raw and "producer" in raw:
        what = f"an {_QUANT}"
    if what:
        raise KvplanError(
            "not-a-config",
            f"{name} is {what}, not a Hugging Face {_CONFIG}",
            help=f"give the {_CONFIG} of the model, or hf:org/name",
        )


def _from_cards(name: str) -> Model:
    from kvplan.files.cards.find import load_card

    url = _HUB_URL.fullmatch(name) if name.startswith("http") else None
    if url:
        raise KvplanError("unknown-model", f"{name} is an address", help=f"write hf:{url[1]}")
    try:
        return load_card(name)
    except KvplanError as error:
        if error.code == "unknown-model" and _HUB_ID.fullmatch(name):
            hint = f"hf:{name} reads its config.json from the Hugging Face hub"
            others = [line for line in error.help if "hf:org/name" not in line]
            near = [line for line in others if line.startswith("did you mean")]
            rest = [line for line in others if line not in near]
            error.help = (*near, hint, *rest)
        raise


def _no_config(path: Path) -> KvplanError:
    """The error for a directory without config.json, with what lies there instead."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        return KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}")
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    helps = []
    if gguf:
        first = next((name for name in gguf if "-00001-of-" in name), gguf[0])
        helps.append(f"the directory has a GGUF file: give {path / first}")
    if "params.json" in names:
        helps.append(f"params.json is its publisher's native format: get the {_CONFIG} of the model")
    if "adapter_config.json" in names:
        helps.append("this is an adapter: give the model that it adapts")
    cards = [name for name in names if name.endswith((".yaml", ".yml"))]
    if cards and not helps:
        helps.append(f"a model card is given as a file, for example {path / cards[0]}")
    return KvplanError(
        "no-such-file",
        f"{path} has no {_CONFIG}",
        help=helps or (f"a model directory has a {_CONFIG}; a file or hf:org/name can be given instead",),
    )


def _id_of(file: Path) -> str:
    """``org/name`` from the directory: ``org__name``, a hub snapshot, or the directory's own name."""
    if file.name != _CONFIG:
        return file.stem
    try:
        parent = file.parent.resolve()
    except (OSError, RuntimeError):
        parent = file.parent
    for part in reversed(parent.parts):
        cached = _CACHED.fullmatch(part)
        if cached:
            return f"{cached[1]}/{cached[2]}"
    return parent.name.replace("__", "/") or "config"


def _as_path(name: str) -> Path:
    path = Path(name)
    if name.startswith("~"):
        try:
            return path.expanduser()
        except RuntimeError:
            return path
    return path


def _kind(path: Path) -> int:
    """The st_mode of what a path leads to, 0 where there is nothing. Raises KvplanError(unreadable-file)."""
    try:
        return path.stat().st_mode
    except PermissionError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror}") from error
    except (OSError, ValueError):
        # Not there, too long a name, a NUL in it, a circle of links: said where the file is opened.
        return 0


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith(("/", "./", "../", "~", ".\\", "..\\")) or name in (".", "..") or name.endswith("/")
    )
