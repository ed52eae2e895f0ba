"""A Hugging Face ``config.json`` becomes a Model: text part found, defaults applied, layers compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.blocks.custom import states_layers, unknown_decoder
from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.config.claims import other_type, unclaimed_words
from kvplan.architectures.config.class_names import first_architecture
from kvplan.architectures.config.custom_types import NOT_SIZED
from kvplan.architectures.config.drafts import draft_layers
from kvplan.architectures.config.engine_facts import engine_facts
from kvplan.architectures.config.facts import (
    longest_context,
    other_facts,
    plain_numbers,
    quant_object,
    quantisation,
)
from kvplan.architectures.config.overlays import with_overlays
from kvplan.architectures.config.roles import Role, layer_count, role_of, shaped
from kvplan.architectures.config.sanity import assumed, check_sizes
from kvplan.architectures.config.text_part import TextPart, find_text_part, unknown_type
from kvplan.architectures.config.view import QUANT_KEY, ConfigView, Sourced
from kvplan.architectures.lineages import lineage_of
from kvplan.errors import KvplanError
from kvplan.families import NoCache, Part
from kvplan.model import FOREIGN_CLASS, Layer, Model, Provenance, runs_of
from kvplan.record import fields, replace

MAX_KEYS = 20_000


def read_config(
    raw: Mapping[str, Any],
    *,
    id: str,  # noqa: A002 - the model's id, as on the hub
    source: str,
    hf_quant_config: Mapping[str, Any] | None = None,
) -> Model:
    """The model that a config describes; hf_quant_config is ModelOpt's file beside it, where there is one.

    Raises KvplanError: bad-config (wrong type or range), missing-key, unknown-model-type,
    unknown-layer-type, unknown-dtype.
    """
    part = _text_part(raw)
    role = role_of(part)
    layers, warnings = _layers(part, role)
    if role.no_cache is None:
        check_sizes(part, layers)
    drafts = draft_layers(part, layers)
    plain, keys = strip_sources(layers)
    plain_drafts, _ = strip_sources(list(drafts))
    method, scheme, quant_warnings = quantisation(part, hf_quant_config)
    heads, hidden, vocab = plain_numbers(part.view, strict=role.no_cache is None)
    length = longest_context(part)
    reason = (f"no KV cache: {role.no_cache}",) if role.no_cache else ()
    return Model(
        id=id,
        source=source,
        model_type=part.model_type,
        architecture=first_architecture(raw),
        runs=runs_of(plain),
        dtype=part.stated_dtype,
        max_model_len=length,
        num_attention_heads=heads,
        hidden_size=hidden,
        vocab_size=vocab,
        kv_cache_scheme=scheme,
        quantization=method,
        encoder=role.encoder,
        draft_layers=tuple(plain_drafts),
        no_cache_reason=role.no_cache,
        facts={
            **other_facts(part),
            **engine_facts(part.view, length, quant_object(part, hf_quant_config), scheme),
            **_foreign(raw, part, layers),
        },
        provenance=Provenance(how="config", keys=keys),
        warnings=(
            *reason,
            *part.warnings,
            *unclaimed_words(part),
            *warnings,
            *assumed(part, len(layers), keys),
            *quant_warnings,
        ),
        config=raw if hf_quant_config is None else {**raw, QUANT_KEY: hf_quant_config},
    )


def text_view(raw: Mapping[str, Any]) -> ConfigView:
    """The view of the text decoder: the config itself, or the part that holds the text model."""
    return _text_part(raw).view


def _text_part(raw: Mapping[str, Any]) -> TextPart:
    if not isinstance(raw, Mapping):
        raise KvplanError("bad-config", f"a config is an object, not a {type(raw).__name__}")
    if len(raw) > MAX_KEYS:
        raise KvplanError("bad-config", f"the config has {len(raw):,} keys")
    return find_text_part(raw)


def own_layers(part: TextPart) -> list[Layer]:
    """The model's own layers, as `read_config` reads them."""
    return _layers(part, role_of(part))[0]


def _layers(part: TextPart, role: Role) -> tuple[list[Layer], tuple[str, ...]]:
    """The layers in their role, and what had to be assumed to read them."""
    if role.no_cache is not None:
        return [Layer((NoCache(),))] * layer_count(part), ()
    view = part.view
    warnings: tuple[str, ...] = ()
    rule = lineage_of(view.model_type).layers
    if rule is None and not part.known:
        rule = _unknown_rule
        how = (
            "its layers were read as layer_types states them, as those of a plain decoder"
            if states_layers(view)
            else "read as a plain decoder with full attention in every layer, because nothing in the config"
            " speaks against it"
        )
        warnings = (f"unknown model type {part.model_type[:80]!r}: {how}",)
    layers = (rule or plain_decoder)(view)
    return with_overlays(view, shaped(part, layers, role)), warnings


def _foreign(raw: Mapping[str, Any], part: TextPart, layers: list[Layer]) -> dict[str, str]:
    """The fact of a class whose own type has other layers than the file's type, or cannot read the file."""
    other = other_type(part)
    if other is None:
        return {}
    try:
        inner = find_text_part({**raw, "model_type": other})
        if len(inner.levels) == len(part.levels) == 1:  # the file's own config class, the other's layers
            theirs = (lineage_of(inner.view.model_type).layers or plain_decoder)(part.view)
        else:
            theirs = own_layers(inner)
    except KvplanError:
        theirs = []
    return {} if strip_sources(theirs)[0] == strip_sources(layers)[0] else {FOREIGN_CLASS: other}


def _unknown_rule(view: ConfigView) -> list[Layer]:
    if view.model_type in NOT_SIZED:
        raise unknown_type(view.model_type, NOT_SIZED[view.model_type])
    try:
        return unknown_decoder(view)
    except KvplanError as error:
        why = error.message.removeprefix(f"{view.model_type}: ")
        raise unknown_type(view.model_type, why) from error


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
    return replace(part, **changed) if changed else part  # type: ignore[arg-type]
