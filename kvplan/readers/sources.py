"""Where a model comes from: a card, a file or directory, standard input, the Hugging Face hub, a GGUF header."""

from __future__ import annotations

import sys
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.readers.config import read_config
from kvplan.readers.json_input import parse_json, read_limited


def open_model(name: str, *, revision: str | None = None) -> Model:
    """The model behind a name as a user types it.

    ``-`` reads a config from standard input; ``hf:org/name`` asks the hub; a path that exists is a config.json,
    a directory that has one, a model card (.yaml) or a GGUF file; anything else is looked up among the cards.
    Raises KvplanError(unknown-model | no-such-file | bad-config …).
    """
    if name == "-":
        raw = sys.stdin.buffer.read()
        return read_config(parse_json(raw, name="-"), id="stdin", source="-")
    if name.startswith("hf:"):
        from kvplan.readers.hub import open_hub_model

        return open_hub_model(name.removeprefix("hf:"), revision=revision)
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        from kvplan.readers.gguf_header import read_gguf

        return read_gguf(path)
    if path.is_dir() or path.suffix == ".json":
        return read_directory(path)
    from kvplan.readers.cards import load_card, read_card_file

    if path.suffix in (".yaml", ".yml"):
        return read_card_file(path)
    return load_card(name)


def read_directory(path: Path) -> Model:
    """config.json in a directory (or the file itself), with hf_quant_config.json beside it where present."""
    file = path / "config.json" if path.is_dir() else path
    raw = parse_json(read_limited(file), name=str(file))
    beside = file.parent / "hf_quant_config.json"
    quant = parse_json(read_limited(beside), name=str(beside)) if beside.is_file() else None
    if not file.is_file():
        raise KvplanError("no-such-file", f"{file} does not exist")
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    return read_config(raw, id=name.replace("__", "/"), source=str(file), hf_quant_config=quant)
