"""From a Model to the text of a card. ``card_file`` reads it back as the same runs and facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.families import Part
from kvplan.files.cards.card import FORMAT, Expectation, Source, Variant, Weights, changed_keys, config_lines
from kvplan.files.cards.pattern import shorten
from kvplan.files.yaml.scalars import Trap, read_plain
from kvplan.later import regex
from kvplan.model import Layer, Model
from kvplan.record import MISSING, JsonDict, fields

SCHEMA_LINE = "# yaml-language-server: $schema=card.schema.json"
_PLAIN = regex(r"[A-Za-z0-9][A-Za-z0-9 ()/._+@-]*")
_FLOW_WIDTH = 100
_NULL = object()
"""A null that is written out: a variant that lacks what its card has."""


def card_text(
    model: Model,
    *,
    source: Source,
    aliases: Sequence[str] = (),
    weights: Weights | None = None,
    variants: Sequence[Variant] = (),
    expect: Sequence[Expectation] = (),
    evidence: Sequence[Expectation] = (),
) -> str:
    """The whole card; the same model gives the same bytes. Warnings of an unverified source are left out:
    the reader makes them from ``source``."""
    data: dict[str, object] = {
        "kvplan": FORMAT,
        "id": model.id,
        "aliases": list(aliases),
        "source": _given(source),
        "model_type": model.model_type,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "max_model_len": model.max_model_len,
        "num_attention_heads": model.num_attention_heads or None,
        "hidden_size": model.hidden_size or None,
        "vocab_size": model.vocab_size or None,
        "quantization": model.quantization,
        "kv_cache_scheme": model.kv_cache_scheme,
        "encoder": _encoder(model),
        "no_cache_reason": model.no_cache_reason,
        "facts": _with_nulls(model.facts),
        "warnings": [text for text in model.warnings if not text.startswith("the card of ")],
        "layers": _layers(model),
        "config_keys": {family: dict(keys) for family, keys in model.provenance.keys.items()},
        "config": _Text(config_lines(model.config)) if model.config else None,
        "weights": _given(weights or Weights()),
        "variants": [_variant(variant, model) for variant in variants],
        "expect": [_expectation(entry) for entry in expect],
        "evidence": [_expectation(entry) for entry in evidence],
    }
    return "\n".join([SCHEMA_LINE, *_block(data, "", keep=("evidence",))]) + "\n"


def expectation_lines(entry: Expectation) -> list[str]:
    """One entry of ``expect`` or ``evidence`` as lines of the card."""
    return list(_block({"entries": [_expectation(entry)]}, ""))[1:]


def kind_names(layers: Sequence[Layer]) -> dict[Layer, str]:
    """A name for each different layer: its families, numbered where several have the same."""
    names: dict[Layer, str] = {}
    taken: dict[str, int] = {}
    for layer in layers:
        if layer not in names:
            taken[layer.family] = taken.get(layer.family, 0) + 1
            number = taken[layer.family]
            names[layer] = layer.family if number == 1 else f"{layer.family}-{number}"
    return names


def _layers(model: Model) -> dict[str, object]:
    layers = model.layers()
    names = kind_names([*layers, *model.draft_layers])
    return {
        "kinds": {name: [_part(part) for part in layer.parts] for layer, name in names.items()},
        "pattern": shorten([names[layer] for layer in layers]) or None,
        "draft": shorten([names[layer] for layer in model.draft_layers]) or None,
    }


def _part(part: Part) -> JsonDict:
    values: JsonDict = {"family": part.family}
    for entry in fields(part):
        value = getattr(part, entry.name)
        if entry.default is MISSING or value != entry.default:
            values[entry.name] = value
    return values


def _encoder(model: Model) -> JsonDict | None:
    if model.encoder is None:
        return None
    return {"input": model.encoder.input.value, "tokens": model.encoder.tokens}


class _Text(tuple[str, ...]):
    """Lines that are written as a block."""

    def __new__(cls, lines: Sequence[str]) -> _Text:
        return super().__new__(cls, lines)


def _variant_config(variant: Variant, model: Model) -> dict[str, object]:
    own = variant.changes.get("config")
    if own is None or model.config is None:
        return {"config": _Text(config_lines(own))} if own else {}
    different, without = changed_keys(model.config, own)
    return {
        "config": _Text(config_lines(different)) if different else None,
        "config_without": list(without),
    }


def _variant(variant: Variant, model: Model) -> dict[str, object]:
    changes = {key: value for key, value in variant.changes.items() if key != "config"}
    if "facts" in changes:
        changes["facts"] = _with_nulls(changes["facts"])
    return {
        "id": variant.id,
        "aliases": list(variant.aliases),
        "source": _given(variant.source) if variant.source else None,
        **_with_nulls(changes),
        **_variant_config(variant, model),
        "weights": _given(variant.weights) if variant.weights != Weights() else None,
    }


def _expectation(entry: Expectation) -> JsonDict:
    settings = dict(entry.settings)
    tokens = settings.pop("tokens", None)
    return {
        "engine": entry.engine,
        "tokens": tokens,
        "settings": settings,
        "field": entry.field,
        "value": entry.value,
        "source": entry.source,
    }


def _with_nulls(data: Mapping[str, object]) -> dict[str, object]:
    return {key: _NULL if value is None else value for key, value in data.items()}


def _given(value: Any) -> JsonDict:
    return {entry.name: getattr(value, entry.name) for entry in fields(value)}


def _block(data: Mapping[str, object], indent: str, keep: Sequence[str] = ()) -> Iterator[str]:
    """YAML lines; null, empty lists and empty mappings are left out (but for the keys in `keep`)."""
    for key, value in data.items():
        head = f"{indent}{scalar(key)}:"
        if key in keep and not value:
            yield f"{head} []"
        elif _is_empty(value):
            continue
        elif isinstance(value, _Text):
            yield f"{head} |"
            yield from (f"{indent}  {text}" for text in value)
        elif isinstance(value, Mapping):
            flow = _flow(value)
            if indent and len(head) + len(flow) < _FLOW_WIDTH and not _has_inner(value):
                yield f"{head} {flow}"
            else:
                yield head
                yield from _block(value, indent + "  ")
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            yield head
            for one in value:
                yield from _item(one, indent + "  ")
        else:
            yield f"{head} {_flow(value)}"


def _item(value: Mapping[str, object], indent: str) -> Iterator[str]:
    flow = _flow(value)
    if len(indent) + len(flow) < _FLOW_WIDTH and not any(isinstance(one, _Text) for one in value.values()):
        yield f"{indent}- {flow}"
        return
    lines = list(_block(value, indent + "  "))
    yield f"{indent}- {lines[0].strip()}"
    yield from lines[1:]


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        inner = (f"{scalar(key)}: {_flow(one)}" for key, one in value.items() if not _is_empty(one))
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    return scalar(value)


def _has_inner(value: Mapping[str, object]) -> bool:
    return any(isinstance(one, (Mapping, list)) and one for one in value.values())


def _is_empty(value: object) -> bool:
    return value is None or value in ([], {}, ())


def scalar(value: object) -> str:
    """A scalar that the strict reader reads back as the same value."""
    if value is _NULL:
        return "null"
    if isinstance(value, str):
        return value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return json.dumps(value)


def _is_plain(text: str) -> bool:
    if not _PLAIN.fullmatch(text) or text != text.strip():
        return False
    read = read_plain(text)
    return not isinstance(read, Trap) and read == text
