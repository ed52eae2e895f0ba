"""One model card to one `Card`, without pydantic: this is on the path of every command.

The layout is that of `kvplan.files.cards.schema.CardFile`, which the tests hold every packaged card to.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import PurePath
from typing import Any

from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import FAMILIES, Part
from kvplan.files.cards.card import (
    FORMAT,
    HOW,
    OVERLAY,
    TEXTS,
    WEIGHTS_HOW,
    Card,
    Expectation,
    OnCard,
    Source,
    Variant,
    Weights,
    unverified,
)
from kvplan.files.cards.config import CardConfig
from kvplan.files.cards.pattern import expand
from kvplan.files.located_reader import LocatedReader
from kvplan.files.yaml.marks import Located, Path
from kvplan.model import Encoder, EncoderInput, Layer, LayerRun, Model, Provenance

_NUMBERS = ("num_attention_heads", "hidden_size", "vocab_size")
_KNOWN = frozenset(
    {"kvplan", "id", "aliases", "source", "model_type", *OVERLAY, *_NUMBERS, "encoder", "no_cache_reason",
     "layers", "config_keys", "config", "weights", "variants", "expect", "evidence", "warnings"}
)  # fmt: skip
_VARIANT = frozenset({"id", "aliases", "source", "weights", "config", "config_without", *OVERLAY})
_SOURCE = frozenset({"repository", "revision", "path", "how", "verified", "note"})


def card_from_located(located: Located, *, slug: str | None = None) -> Card:
    """The `Card` that a file describes; `slug` is the file's name without its ending.

    Raises:
        KvplanError: ``unknown-key``, ``missing-key``, ``unknown-family``, ``bad-pattern`` or
            ``invalid-card``, each with its line.
    """
    return _Reader(located, "a model card", "invalid-card").card(
        PurePath(located.name).stem if slug is None else slug
    )


class _Reader(LocatedReader):
    """Takes the file apart key by key."""

    def card(self, slug: str) -> Card:
        data = self.data
        if data.get("kvplan") != FORMAT:
            plan = str(data.get("kvplan")).startswith("plan/")
            helps = ["this is a plan: kvplan.load_plans(path) reads it"] if plan else []
            raise self.located.error(
                self.code, f"`kvplan`: a model card begins with `kvplan: {FORMAT}`", ("kvplan",), help=helps
            )
        self.only(data, _KNOWN, ())
        source = self.source(())
        if source is None:
            raise self.missing("source", ())
        name = self.text(("id",), required=True) or ""
        kinds = self.kinds()
        warnings = (*unverified(name, source), *self.texts(("warnings",)))
        model = Model(
            id=name,
            source=f"card:{slug}",
            model_type=self.text(("model_type",), required=True) or "",
            runs=self.pattern("pattern", kinds, required=bool(kinds)),
            draft_layers=tuple(run.layer for run in self.pattern("draft", kinds) for _ in range(run.count)),
            **{key: self.text((key,)) for key in TEXTS},  # type: ignore[arg-type]
            max_model_len=self.number(("max_model_len",)),
            **{key: self.number((key,)) or 0 for key in _NUMBERS},  # type: ignore[arg-type]
            encoder=self.encoder(),
            no_cache_reason=self.text(("no_cache_reason",)),
            facts=self.facts(()),
            provenance=Provenance(source.sentence(), source.revision, self.config_keys()),
            warnings=warnings,
            config=self.config(()),
        )
        weights = self.weights(())
        model = replace(model, weights=OnCard(weights))
        if weights.tensors:
            from kvplan.files.cards.tensors import checkpoint_of

            model = replace(model, counted=checkpoint_of(weights.tensors, f"the card of {name}"))
        return Card(
            slug=slug,
            model=model,
            aliases=self.texts(("aliases",)),
            source=source,
            weights=weights,
            variants=tuple(self.variant(("variants", index), model) for index in self.entries("variants")),
            expect=tuple(self.expectation(("expect", index)) for index in self.entries("expect")),
            evidence=tuple(self.expectation(("evidence", index)) for index in self.entries("evidence")),
        )

    def kinds(self) -> dict[str, Layer]:
        """The named kinds of layer."""
        layers = self.mapping(("layers",), required="no_cache_reason" not in self.data)
        if not layers:
            return {}
        self.only(layers, {"kinds", "pattern", "draft"}, ("layers",))
        kinds: dict[str, Layer] = {}
        for name in self.mapping(("layers", "kinds"), required=True):
            path = ("layers", "kinds", name)
            parts = self.typed(path, list, "a list of parts")
            if not parts:
                raise self.wrong(path, "a layer has at least one part: use family no_cache")
            kinds[str(name)] = Layer(tuple(self.part((*path, index)) for index in range(len(parts))))
        return kinds

    def part(self, path: Path) -> Part:
        entry = self.mapping(path)
        family = self.text((*path, "family"), required=True) or ""
        if family not in FAMILIES:
            near = did_you_mean(family, FAMILIES)
            raise self.located.error(
                "unknown-family",
                f"unknown attention family `{family}`",
                (*path, "family"),
                help=f"did you mean {near}?" if near else "known: " + ", ".join(FAMILIES),
            )
        known = _parameters(family)
        values: dict[str, Any] = {}
        for key in entry:
            if key == "family":
                continue
            if key not in known:
                from kvplan.files.yaml.validation import unknown_key

                raise unknown_key(self.located, (*path, key), {"family", *known} - set(map(str, entry)))
            values[str(key)] = self.parameter((*path, key), known[str(key)][0], known[str(key)][1])
        for key, (_, required) in known.items():
            if required and key not in values:
                raise self.missing(key, path)
        return FAMILIES[family](**values)

    def parameter(self, path: Path, kind: str, required: bool) -> Any:
        if kind.startswith("bool"):
            return self.typed(path, bool, "true or false")
        if kind.startswith("str"):
            return self.typed(path, str, "text")
        return self.number(path, lowest=1 if required else 0, required=True)

    def pattern(self, key: str, kinds: dict[str, Layer], *, required: bool = False) -> tuple[LayerRun, ...]:
        path = ("layers", key)
        text = self.text(path, required=required)
        if text is None:
            return ()
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

    def encoder(self) -> Encoder | None:
        entry = self.mapping(("encoder",))
        if not entry:
            return None
        self.only(entry, {"input", "tokens"}, ("encoder",))
        word = self.text(("encoder", "input"), required=True)
        try:
            kind = EncoderInput(word)
        except ValueError:
            known = ", ".join(one.value for one in EncoderInput)
            raise self.wrong(("encoder", "input"), f"this must be one of {known}") from None
        return Encoder(kind, self.number(("encoder", "tokens")))

    def facts(self, path: Path) -> dict[str, int | str | bool | None]:
        path = (*path, "facts")
        return {
            str(key): self.typed((*path, key), (int, str, bool), "one value", default=None, any_bool=True)
            for key in self.mapping(path)
        }

    def config_keys(self) -> dict[str, dict[str, str]]:
        return {
            str(family): {
                str(name): self.text(("config_keys", family, name), required=True) or ""
                for name in self.mapping(("config_keys", family))
            }
            for family in self.mapping(("config_keys",))
        }

    def source(self, path: Path) -> Source | None:
        path = (*path, "source")
        entry = self.mapping(path)
        if not entry:
            return None
        self.only(entry, _SOURCE, path)
        how = self.word((*path, "how"), HOW)
        verified = self.typed((*path, "verified"), bool, "true or false")
        texts = {key: self.text((*path, key)) for key in ("repository", "revision", "path", "note")}
        return Source(how, verified, **texts)

    def weights(self, path: Path) -> Weights:
        path = (*path, "weights")
        entry = self.mapping(path)
        if not entry:
            return Weights()
        self.only(entry, {"how", "parameters", "bytes_by_dtype", "note", "tensors"}, path)
        how = self.word((*path, "how"), WEIGHTS_HOW)
        table = (*path, "bytes_by_dtype")
        sizes = {
            str(key): self.number((*table, key), highest=10**18, required=True) or 0
            for key in self.mapping(table)
        }
        if bool(sizes) == (how == "unknown"):
            raise self.wrong((*path, "how"), "bytes_by_dtype is given exactly where `how` is not unknown")
        parameters = self.number((*path, "parameters"), highest=10**18)
        tensors = {
            str(key): self.text((*path, "tensors", key), required=True) or ""
            for key in self.mapping((*path, "tensors"))
        }
        if tensors:
            from kvplan.files.cards.tensors import checkpoint_of

            try:
                checkpoint_of(tensors, "the card")
            except KvplanError as error:
                raise self.wrong((*path, "tensors"), error.message) from None
        return Weights(how, parameters, sizes, self.text((*path, "note")), tensors)

    def config(self, path: Path, base: CardConfig | None = None) -> CardConfig | None:
        text = self.text((*path, "config"))
        without = self.texts((*path, "config_without"))
        if text is None and not without:
            return base
        return CardConfig(text or "", self.located.name, base, without)

    def variant(self, path: Path, model: Model) -> Variant:
        entry = self.mapping(path)
        self.only(entry, _VARIANT, path)
        changes: dict[str, Any] = {key: self.text((*path, key)) for key in TEXTS if key in entry}
        changes |= {key: self.number((*path, key)) for key in ("max_model_len", "vocab_size") if key in entry}
        if "facts" in entry:
            changes["facts"] = self.facts(path)
        if entry.keys() & {"config", "config_without"}:
            changes["config"] = self.config(path, model.config)  # type: ignore[arg-type]
        name = self.text((*path, "id"), required=True) or ""
        aliases = self.texts((*path, "aliases"))
        return Variant(name, aliases, changes, self.source(path), self.weights(path))

    def expectation(self, path: Path) -> Expectation:
        entry = self.mapping(path)
        self.only(entry, {"engine", "field", "value", "settings", "source", "tokens"}, path)
        value = self.typed((*path, "value"), (int, list), "a whole number or [numerator, denominator]")
        settings = {str(key): one for key, one in self.mapping((*path, "settings")).items()}
        tokens = self.number((*path, "tokens"), lowest=0, highest=10**12)
        if tokens is not None:
            settings["tokens"] = tokens
        return Expectation(
            self.text((*path, "engine"), required=True) or "",
            self.text((*path, "field"), required=True) or "",
            value,
            settings,
            self.text((*path, "source")),
        )

    def entries(self, key: str) -> range:
        return range(len(self.typed((key,), list, "a list", default=[])))


@cache
def _parameters(family: str) -> dict[str, tuple[str, bool]]:
    """Parameter of a family → (annotation, whether it has no default)."""
    return {entry.name: (str(entry.type), entry.default is MISSING) for entry in fields(FAMILIES[family])}
