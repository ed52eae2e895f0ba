"""A Hugging Face ``config.json`` becomes a Model: text part found, class defaults applied, layers compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kvplan.errors import KvplanError
from kvplan.families import Part
from kvplan.model import Layer, Model, Provenance, runs_of
from kvplan.readers.defaults import class_facts
from kvplan.readers.rules import rule_for
from kvplan.readers.rules.decoder import plain_decoder
from kvplan.readers.view import ConfigView, Sourced


def read_config(
    raw: Mapping[str, Any],
    *,
    id: str,  # noqa: A002 - the model's id, as on the hub
    source: str,
    hf_quant_config: Mapping[str, Any] | None = None,
) -> Model:
    """The model that a config describes; hf_quant_config is ModelOpt's file beside it, where there is one.

    Raises KvplanError: bad-config (wrong type or range), missing-key, unknown-model-type,
    unknown-layer-type.
    """
    view = text_view(raw)
    layers = (rule_for(view.model_type) or plain_decoder)(view)
    plain, keys = strip_sources(layers)
    return Model(
        id=id,
        source=source,
        model_type=view.model_type,
        architecture=_architecture(raw),
        runs=runs_of(plain),
        dtype=_dtype(raw, view),
        max_model_len=_max_model_len(view),
        num_attention_heads=int(view.optional_integer("num_attention_heads") or 0),
        hidden_size=int(view.optional_integer("hidden_size") or 0),
        vocab_size=int(view.optional_integer("vocab_size", lowest=0) or 0),
        provenance=Provenance(how="config", keys=keys),
    )


def text_view(raw: Mapping[str, Any]) -> ConfigView:
    """The view of the text decoder: the config itself, or the part that the class names as text."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise KvplanError("bad-config", "the config has no model_type", help='add "model_type": "llama", for example')
    facts = class_facts(model_type)
    if facts is None:
        raise KvplanError("unknown-model-type", f"unknown model type {model_type!r}")
    path, holder = facts.get("text"), raw
    if path and isinstance(raw.get(path), Mapping):
        inner = raw[path]
        sub = facts["sub_configs"][path]
        inner_type = inner.get("model_type") or (sub if isinstance(sub, str) else sub.get("type"))
        inner_facts = class_facts(str(inner_type)) or {}
        return ConfigView(
            inner,
            model_type=str(inner_type),
            defaults=inner_facts.get("defaults", {}),
            aliases=inner_facts.get("aliases"),
            path=f"{path}.",
        )
    return ConfigView(
        holder, model_type=model_type, defaults=facts.get("defaults", {}), aliases=facts.get("aliases")
    )


def strip_sources(layers: list[Layer]) -> tuple[list[Layer], dict[str, dict[str, str]]]:
    """Plain whole numbers in the layers, and the keys they came from by family and parameter."""
    keys: dict[str, dict[str, str]] = {}
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            seen[layer] = Layer(tuple(_strip_part(part, keys) for part in layer.parts))
    return [seen[layer] for layer in layers], keys


def _strip_part(part: Part, keys: dict[str, dict[str, str]]) -> Part:
    changed: dict[str, int] = {}
    for entry in fields(part):
        value = getattr(part, entry.name)
        if isinstance(value, Sourced):
            keys.setdefault(part.family, {})[entry.name] = value.key
            changed[entry.name] = int(value)
    return replace(part, **changed) if changed else part


def _architecture(raw: Mapping[str, Any]) -> str | None:
    names = raw.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else None


def _dtype(raw: Mapping[str, Any], view: ConfigView) -> str | None:
    for holder in (raw, view.raw):
        for key in ("dtype", "torch_dtype"):
            if isinstance(holder.get(key), str):
                return str(holder[key]).removeprefix("torch.")
    return None


def _max_model_len(view: ConfigView) -> int | None:
    return view.optional_integer("max_position_embeddings", "n_positions", "max_seq_len")
