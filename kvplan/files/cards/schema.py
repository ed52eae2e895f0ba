"""The layout of a model card as pydantic models: what judges a file, and the JSON Schema.

A packaged card is judged when it is made, and loaded as it is: no command waits for pydantic. The
parameters of the attention families are taken from `kvplan.families`: a new family needs nothing here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from kvplan.errors import KvplanError
from kvplan.families import FAMILIES
from kvplan.files.cards.card import FORMAT, HOW, WEIGHTS_HOW
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.validation import explain_validation
from kvplan.model import EncoderInput
from kvplan.record import MISSING, fields

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=1, le=10**18)]
ModelId = Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")]
Pattern = Annotated[str, Field(pattern=r"^[\w.+ ,()-]+$", max_length=65536)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SourceEntry(_Strict):
    """Where the facts were read."""

    repository: Text | None = Field(default=None, description="owner/name of the public repository")
    revision: Text | None = Field(default=None, description="commit of that repository")
    path: Text | None = None
    how: Literal[tuple(HOW)] = Field(description="; ".join(f"{key}: {text}" for key, text in HOW.items()))  # type: ignore[valid-type]
    verified: bool = Field(description="checked against the published config")
    note: Text | None = None


class WeightsEntry(_Strict):
    """Bytes of the checkpoint by storage type, where somebody has counted them."""

    how: Literal[WEIGHTS_HOW]  # type: ignore[valid-type]
    parameters: Bytes | None = None
    bytes_by_dtype: dict[Text, Bytes] = {}
    note: Text | None = None
    tensors: dict[Text, Text] = Field(
        default={},
        description="what was counted: name (layers as [0-31]) to dtype and shape, such as BF16 4096 4096",
    )


class EncoderEntry(_Strict):
    """The input of cross attention."""

    input: Literal[tuple(one.value for one in EncoderInput)]  # type: ignore[valid-type]
    tokens: Count | None = Field(
        default=None, description="positions of one request, where the model fixes them"
    )


class Overlay(_Strict):
    """Keys that a variant may change."""

    architecture: Text | None = None
    dtype: Text | None = None
    max_model_len: Count | None = None
    vocab_size: Count | None = None
    quantization: Text | None = None
    kv_cache_scheme: Text | None = None


class VariantEntry(Overlay):
    """A released model with the same layers."""

    id: ModelId
    facts: dict[Text, int | str | bool | None] = Field(
        default={}, description="all of them, where one differs from the card's"
    )
    aliases: list[ModelId] = []
    source: SourceEntry | None = None
    config: Text | None = Field(default=None, description="JSON: the keys that differ from the card's config")
    config_without: list[Text] = Field(default=[], description="keys of the card's config that it lacks")
    weights: WeightsEntry | None = None


class NumberEntry(_Strict):
    """One number that an engine gives or printed; value is an integer or [numerator, denominator]."""

    engine: Text
    tokens: Annotated[int, Field(ge=0)] | None = None
    settings: dict[Text, Any] = {}
    field: Text = Field(description="path into the JSON of `kvplan size --json`: total.kv_bytes")
    value: int | list[int]
    source: Text | None = None


MAY_BE_ZERO = frozenset({"qk_rope_head_dim"})
"""Sizes that every part of their family has and that may be none: a latent without a rope key (NoPE)."""


def _part_model(family: str) -> type[BaseModel]:
    """The parameters of one family, from its dataclass."""
    kinds: dict[str, Any] = {"int": Count, "bool": bool, "str": Text}
    members: dict[str, Any] = {"family": (Literal[family], ...)}
    for entry in fields(FAMILIES[family]):
        word = str(entry.type).partition(" ")[0]
        kind = kinds[word]
        if entry.default is MISSING:
            members[entry.name] = (Annotated[int, Field(ge=0)] if entry.name in MAY_BE_ZERO else kind, ...)
        else:
            wide = Annotated[int, Field(ge=0)] if word == "int" else kind
            members[entry.name] = (Union[wide, None], entry.default)
    doc = (FAMILIES[family].__doc__ or family).strip().split("\n")[0]
    return create_model(f"{FAMILIES[family].__name__}Part", __base__=_Strict, __doc__=doc, **members)


PartEntry: Any = Annotated[
    Union[tuple(_part_model(family) for family in FAMILIES)],
    Field(discriminator="family"),
]


class LayersEntry(_Strict):
    """The layers: named kinds and their order, for example `10 (5 sliding_window, full_attention)`."""

    kinds: dict[Text, Annotated[list[PartEntry], Field(min_length=1)]]
    pattern: Pattern
    draft: Pattern | None = Field(default=None, description="multi-token-prediction layers")


class CardFile(Overlay):
    """One model, and the variants that share its layers."""

    kvplan: Literal["card/v1"]
    id: ModelId
    aliases: list[ModelId] = []
    source: SourceEntry
    model_type: Text
    num_attention_heads: Count | None = None
    hidden_size: Count | None = None
    encoder: EncoderEntry | None = None
    no_cache_reason: Text | None = None
    facts: dict[Text, int | str | bool | None] = {}
    warnings: list[Text] = []
    layers: LayersEntry | None = Field(default=None, description="absent only with no_cache_reason")
    config_keys: dict[Text, dict[Text, Text]] = Field(
        default={}, description="family: {parameter: the config key it came from}"
    )
    config: Text | None = Field(
        default=None, description="JSON: the keys of config.json that decide sizes; hf_quant_config beside it"
    )
    weights: WeightsEntry
    variants: list[VariantEntry] = []
    expect: list[NumberEntry] = Field(default=[], description="golden numbers: the card is its own test")
    evidence: list[NumberEntry] = Field(default=[], description="what a real engine printed")


def schema_errors(located: Located) -> list[KvplanError]:
    """Everything that is wrong with a card's layout; an empty list means nothing."""
    try:
        CardFile.model_validate(located.data)
    except ValidationError as error:
        return explain_validation(error, located, model=CardFile, code="invalid-card")
    return []


def card_json_schema() -> dict[str, Any]:
    """The JSON Schema of a card."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **CardFile.model_json_schema(),
        "title": f"kvplan model card ({FORMAT})",
    }
