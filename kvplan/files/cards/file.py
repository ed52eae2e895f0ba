"""One model card to one `Card`. `kvplan.files.cards.schema.CardFile` is its layout and judges own files.

What a layout cannot say is judged here for every card: patterns that name kinds, bytes that somebody counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import FAMILIES, Part
from kvplan.files.cards.card import (
    FORMAT,
    TEXTS,
    Card,
    CardConfig,
    Expectation,
    OnCard,
    Source,
    Variant,
    Weights,
    unverified,
)
from kvplan.files.cards.pattern import expand
from kvplan.files.yaml.marks import Located, Path
from kvplan.model import Encoder, EncoderInput, Layer, LayerRun, Model, Provenance
from kvplan.record import Json, replace

_NUMBERS = ("num_attention_heads", "hidden_size", "vocab_size")


def card_from_located(located: Located, *, slug: str | None = None) -> Card:
    """The `Card` that anybody's file describes; `slug` is the file's name without its ending.

    Raises:
        KvplanError: ``unknown-key``, ``missing-key``, ``unknown-family``, ``bad-pattern`` or
            ``invalid-card``, each with its line.
    """
    from kvplan.files.cards.schema import schema_errors
    from kvplan.files.yaml.validation import combine, typos_first

    form = located.mapping("a model card").get("kvplan")
    if form != FORMAT:
        plan = str(form).startswith("plan/")
        helps = ["this is a plan: kvplan.load_plans(path) reads it"] if plan else []
        from kvplan.files.yaml.manifests import is_manifest_shape, nothing_starts

        if form is None and is_manifest_shape(located.data):
            raise nothing_starts(located.name)
        text = f"`kvplan`: a model card begins with `kvplan: {FORMAT}`"
        raise located.error("invalid-card", text, ("kvplan",), help=helps)
    errors = schema_errors(located)
    if errors:
        raise combine(typos_first(errors))
    return card_of(located, PurePath(located.name).stem if slug is None else slug)


def card_of(located: Located, slug: str) -> Card:
    """The `Card` of a file that keeps the layout: packaged cards are judged when they are made.

    Raises:
        KvplanError: ``bad-pattern`` or ``invalid-card``, each with its line.
    """
    return _Reader(located).card(slug)


class _Reader:
    """Takes the file apart key by key."""

    def __init__(self, located: Located) -> None:
        self.located = located
        self.data: Json = located.data

    def card(self, slug: str) -> Card:
        data = self.data
        source = _source(data["source"])
        layers = data.get("layers") or {}
        if not layers and not data.get("no_cache_reason"):
            raise self.located.error("missing-key", "the key `layers` is missing", help="add `layers:`")
        kinds = {
            str(name): Layer(tuple(_part(one) for one in parts))
            for name, parts in layers.get("kinds", {}).items()
        }
        draft = self.pattern("draft", layers.get("draft"), kinds)
        weights = self.weights(data, ())
        named: dict[str, Any] = {key: data.get(key) for key in TEXTS}
        named |= {key: data.get(key) or 0 for key in _NUMBERS}
        model = Model(
            id=data["id"],
            source=f"card:{slug}",
            model_type=data["model_type"],
            runs=self.pattern("pattern", layers.get("pattern"), kinds),
            draft_layers=tuple(run.layer for run in draft for _ in range(run.count)),
            max_model_len=data.get("max_model_len"),
            **named,
            encoder=_encoder(data.get("encoder")),
            no_cache_reason=data.get("no_cache_reason"),
            facts=dict(data.get("facts") or {}),
            provenance=Provenance(
                source.sentence(), source.revision, data.get("config_keys") or {}, source.whole
            ),
            warnings=(*unverified(data["id"], source), *(data.get("warnings") or ())),
            config=self.config(data),
            weights=OnCard(weights),
        )
        if weights.tensors:
            from kvplan.files.cards.tensors import checkpoint_of

            model = replace(model, counted=checkpoint_of(weights.tensors, f"the card of {data['id']}"))
        variants = enumerate(data.get("variants") or ())
        return Card(
            slug=slug,
            model=model,
            aliases=tuple(data.get("aliases") or ()),
            source=source,
            weights=weights,
            variants=tuple(self.variant(one, ("variants", at), model) for at, one in variants),
            expect=tuple(map(_expectation, data.get("expect") or ())),
            evidence=tuple(map(_expectation, data.get("evidence") or ())),
        )

    def pattern(self, key: str, text: str | None, kinds: Mapping[str, Layer]) -> tuple[LayerRun, ...]:
        if text is None:
            return ()
        path = ("layers", key)
        try:
            runs = expand(text)
        except KvplanError as error:
            raise self.located.error(error.code, error.message, path, help=error.help) from None
        for name, _ in runs:
            if name not in kinds:
                near = did_you_mean(name, kinds)
                raise self.located.error(
                    "invalid-card",
                    f"`{key}` names the kind `{name}`, which `kinds` does not have",
                    path,
                    help=f"did you mean {near}?" if near else "kinds: " + ", ".join(kinds),
                )
        return tuple(LayerRun(kinds[name], count) for name, count in runs)

    def weights(self, holder: Json, path: Path) -> Weights:
        entry = holder.get("weights")
        if not entry:
            return Weights()
        path = (*path, "weights")
        how, sizes, tensors = entry["how"], entry.get("bytes_by_dtype") or {}, entry.get("tensors") or {}
        if bool(sizes) == (how == "unknown"):
            text = "`bytes_by_dtype` is given exactly where `how` is not unknown"
            raise self.located.error("invalid-card", text, (*path, "how"))
        if tensors:
            from kvplan.files.cards.tensors import checkpoint_of

            try:
                checkpoint_of(tensors, "the card")
            except KvplanError as error:
                raise self.located.error("invalid-card", error.message, (*path, "tensors")) from None
        return Weights(how, entry.get("parameters"), sizes, entry.get("note"), tensors)

    def config(self, entry: Json, base: Json | None = None) -> Any:
        text, without = entry.get("config"), tuple(entry.get("config_without") or ())
        if text is None and not without:
            return base
        return CardConfig(text or "", self.located.name, base, without)

    def variant(self, entry: Json, path: Path, model: Model) -> Variant:
        changes = {key: entry[key] for key in (*TEXTS, "max_model_len", "vocab_size") if key in entry}
        if "facts" in entry:
            changes["facts"] = dict(entry["facts"] or {})
        if entry.keys() & {"config", "config_without"}:
            changes["config"] = self.config(entry, model.config)
        source = entry.get("source")
        return Variant(
            entry["id"],
            tuple(entry.get("aliases") or ()),
            changes,
            _source(source) if source else None,
            self.weights(entry, path),
        )


def _part(entry: Json) -> Part:
    given = {key: value for key, value in entry.items() if key != "family" and value is not None}
    return FAMILIES[entry["family"]](**given)


def _encoder(entry: Json | None) -> Encoder | None:
    return Encoder(EncoderInput(entry["input"]), entry.get("tokens")) if entry else None


def _source(entry: Json) -> Source:
    texts = {key: entry.get(key) for key in ("repository", "revision", "path", "note")}
    return Source(entry["how"], entry["verified"], **texts)


def _expectation(entry: Json) -> Expectation:
    settings = dict(entry.get("settings") or {})
    if entry.get("tokens") is not None:
        settings["tokens"] = entry["tokens"]
    return Expectation(entry["engine"], entry["field"], entry["value"], settings, entry.get("source"))
