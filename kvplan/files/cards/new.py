"""A new card from a config, a GGUF file or the hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.cards.card import Expectation, Source, Weights
from kvplan.files.cards.lint import SizeOf
from kvplan.files.cards.writer import card_text
from kvplan.files.folders import is_folder
from kvplan.files.sources import open_model
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import replace

_NOT_IN_AN_ID = regex(r"[^\w./-]+", re.ASCII)
EXPECTED = (1000, "generic", "total.kv_bytes_per_request")
"""The golden number that a new card gets: tokens, engine and field."""


def card_from_config(source: str, *, count: bool = False, size: SizeOf | None = None) -> str:
    """The text of a card for a path, a directory, ``-`` (standard input), ``hf:org/name`` or a GGUF file.

    count: its tensors too, counted by building the model's class (extras hf and gpu). size: a function like
    ``kvplan.size``, which gives the golden number. Only what came from the hub is verified: a file may be
    anybody's.

    Raises:
        KvplanError: ``has-card`` for the name of a model that has one; what `open_model` of
            `kvplan.files.sources` raises.
    """
    model = open_model(source)
    if source.endswith((".yaml", ".yml")) or model.source.startswith("card:"):
        raise KvplanError(
            "has-card",
            f"{source} is a card already",
            help="give the path of a config.json, or hf:org/name",
        )
    is_hub = source.startswith("hf:")
    folder = is_hub or is_folder(Path(source))
    path = "standard input" if source == "-" else "config.json" if folder else Path(source).name
    origin = Source(
        how="converted" if source.endswith(".gguf") else "verbatim",
        verified=is_hub,
        repository=source.removeprefix("hf:") if is_hub else None,
        revision=model.provenance.revision,
        path=path,
    )
    name = _NOT_IN_AN_ID.sub("-", model.id).strip("-/") or "unnamed"
    weights = None
    if count:
        from kvplan.files.cards.tensors import tensor_lines
        from kvplan.files.meta_model import counted

        found = counted(model).counted
        assert found is not None
        number = sum(tensor.elements for tensor in found.tensors)
        lines = tensor_lines(found.tensors)
        weights = Weights("parameter count", number, found.bytes_by_dtype(), found.where, lines)
    named = replace(model, id=name)
    expect = () if size is None else (_expected(named, size),)
    return card_text(named, source=origin, weights=weights, expect=expect)


def _expected(model: Model, size: SizeOf) -> Expectation:
    tokens, engine, field = EXPECTED
    value: Any = size(model, engine=engine, tokens=tokens).model_dump()
    for key in field.split("."):
        value = value[key]
    return Expectation(engine, field, value, {"tokens": tokens})
