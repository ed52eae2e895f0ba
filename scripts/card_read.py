"""Sizes that public projects state of models (`card_read.yaml`), and whether a card has the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvplan.files.cards.card import Source
from kvplan.model import Model

READ = Path(__file__).with_name("card_read.yaml")
FORWARD = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff")
NOTE = "these sizes as the project trains or loads the checkpoint; keys that it does not have from memory"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file of a project says of one model."""

    source: Source
    sizes: dict[str, int]


def readings() -> dict[str, Reading]:
    """Slug → what was read of it."""
    found: dict[str, Reading] = {}
    for entry in yaml.safe_load(READ.read_text(encoding="utf-8")):
        where = {name: entry[name] for name in ("repository", "revision", "path")}
        for slug, sizes in entry["sizes"].items():
            source = Source("converted", verified=True, note=entry.get("note", NOTE), **where)
            found[slug] = Reading(source, sizes)
    return found


def sizes_of(model: Model) -> dict[str, int]:
    """The same sizes of a card's model; those that it does not state are left out."""
    part: Any = next(
        (part for run in model.runs for part in run.layer.parts if hasattr(part, "num_kv_heads")), None
    )
    config = model.config or {}
    forward = next((config[key] for key in FORWARD if config.get(key)), None)
    sizes = {
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "heads": model.num_attention_heads,
        "kv": getattr(part, "num_kv_heads", None),
        "width": getattr(part, "head_dim", None),
        "vocabulary": model.vocab_size,
        "forward": forward,
    }
    return {name: int(size) for name, size in sizes.items() if size}


def differences(model: Model, reading: Reading) -> dict[str, tuple[int, int]]:
    """Size → (the card's, the project's) where both state it and they differ."""
    own = sizes_of(model)
    return {
        name: (own[name], size) for name, size in reading.sizes.items() if name in own and own[name] != size
    }
