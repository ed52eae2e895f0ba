"""A model as the core sees it: which parts each layer has, and the few facts that engines ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kvplan.families import Kind, Part
from kvplan.later import regex
from kvplan.record import Json, KeptHash, field, record
from kvplan.shown import Shown

if TYPE_CHECKING:
    from kvplan.weights.facts import WeightSources
    from kvplan.weights.stored import Checkpoint


@record()
class Layer(KeptHash):
    """The cache-bearing parts of one layer, in the order in which the model runs them.

    Most layers have one part. MLA with an indexer, self and cross attention, and attention beside a
    state-space block are several parts of one layer; a layer that stores nothing has a NoCache part.
    """

    parts: tuple[Part, ...]

    @property
    def kinds(self) -> set[Kind]:
        return {part.kind for part in self.parts}

    @property
    def family(self) -> str:
        """``mla+sparse_indexer``: the families of the parts."""
        return "+".join(part.family for part in self.parts)


@record()
class LayerRun(KeptHash):
    """``count`` equal layers in a row."""

    layer: Layer
    count: int


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Run-length encoding of a layer sequence."""
    runs: list[LayerRun] = []
    for layer in layers:
        if runs and runs[-1].layer == layer:
            runs[-1] = LayerRun(layer, runs[-1].count + 1)
        else:
            runs.append(LayerRun(layer, 1))
    return tuple(runs)


GGUF_HEADER = "gguf header"
EAGLE3 = "eagle3"
"""The architecture of a GGUF file of an EAGLE-3 head."""
"""`Provenance.how` of a model that a GGUF file describes."""
FOREIGN_CLASS = "class_of_other_type"
"""The fact of a class whose own type reads other layers from the file, or none."""
GGUF_MIXTURE = "gguf_mixture"
"""The fact of a model that is known to be a GGUF file of that mixture, by its name alone."""
_GGUF_BUILD = regex(r"(?:ud[-_])?(?:i?q|tq)[1-8]\w*|mxfp4_moe|b?f16|f32", re.ASCII | re.IGNORECASE)
SENTENCES = "sentence_transformers"
"""The fact of a checkpoint with a modules.json that pools: a model of sentence-transformers."""
BY_NAME = "by its name"
"""How `Provenance.how` begins of a build whose own config was not read."""


def is_gguf_build(word: str) -> bool:
    """Whether a word is written as llama.cpp's mixtures of types are, which no other engine loads.

    >>> [is_gguf_build(word) for word in ("q4_k_m", "IQ3_XXS", "UD-Q4_K_XL", "fp8", "mxfp4", "quark")]
    [True, True, True, False, False, False]
    """
    return _GGUF_BUILD.fullmatch(word.strip()) is not None


class EncoderInput(str, Enum):
    """The input of cross attention."""

    TEXT = "text"
    AUDIO = "audio"
    IMAGE = "image"


@record()
class Encoder:
    """The encoder beside the decoder. ``tokens``: encoder positions of one request where the model fixes
    them (Whisper: 1,500); None where they follow the input."""

    input: EncoderInput
    tokens: int | None = None


@record()
class Provenance:
    """Where the model's facts come from, for explanations.

    keys: parameter of a family → the config key it came from, by family name
    (``{"full_attention": {"num_kv_heads": "num_key_value_heads"}}``).
    """

    how: str = ""
    revision: str | None = None
    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    whole: bool = True
    """every key of the published config was seen: one that is absent is absent there too"""


class Weights(Protocol):
    """A handle on a model's weights, given by the door that opened it."""

    def sources(self, model: Model) -> WeightSources: ...


@record(eq=False, guarded=True)  # handed to users
class Model(Shown):
    """Everything that decides a cache's size. Compared and hashed by identity: load once, size often."""

    id: str
    source: str
    model_type: str
    architecture: str | None
    runs: tuple[LayerRun, ...]
    dtype: str | None
    """the element type that the checkpoint states, or None"""
    max_model_len: int | None
    num_attention_heads: int = 0
    hidden_size: int = 0
    vocab_size: int = 0
    kv_cache_scheme: str | None = None
    """the KV dtype that the checkpoint's quantization config asks for, or None"""
    quantization: str | None = None
    encoder: Encoder | None = None
    draft_layers: tuple[Layer, ...] = ()
    """multi-token-prediction layers that a speculative method adds. num_attention_heads and hidden_size
    serve engines' checks and defaults, 0 where the config has none."""
    no_cache_reason: str | None = None
    facts: Mapping[str, int | str | bool | None] = field(default_factory=dict)
    """config values that one engine's rule needs (named as in the config)"""
    provenance: Provenance = field(default_factory=Provenance)
    warnings: tuple[str, ...] = ()
    config: Json | None = field(default=None)
    """the raw config, or the keys of it that decide sizes, for the rules of weights and activations
    (ModelOpt's file under hf_quant_config); None where the model was read from something else"""
    counted: Checkpoint | None = None
    """its tensors, where somebody counted them (a card's, or ``--weights-from``), for models without
    tensor rules"""
    weights: Weights | None = None
    """what the door that opened the model knows of its weights, read when it is first asked"""

    @property
    def gguf_mixture(self) -> str | None:
        """The mixture of a GGUF build that was named, and not read; None where none was."""
        named = self.facts.get(GGUF_MIXTURE)
        return named if isinstance(named, str) else None

    @property
    def is_gguf(self) -> bool:
        """Whether it was read from a GGUF file, which holds its weights too."""
        return self.provenance.how == GGUF_HEADER

    @property
    def is_by_name(self) -> bool:
        """Whether its format follows from its name alone: a build may pad what is not in whole groups."""
        return self.provenance.how.startswith(BY_NAME)

    @property
    def is_makers_own(self) -> bool:
        """Whether such a build is of the model's own maker."""
        base = self.provenance.how.partition(": ")[2]
        owner, _, name = self.id.partition("/")
        return self.is_by_name and bool(name) and base.startswith(f"{owner}/")

    @property
    def is_put_together(self) -> bool:
        """Whether such a build is of a model whose config was not read whole."""
        how = self.provenance.how.partition(", ")[2]
        return self.is_by_name and how.startswith(("assembled", "unverified"))

    @property
    def num_layers(self) -> int:
        return sum(run.count for run in self.runs)

    def layers(self) -> list[Layer]:
        """The whole sequence, one entry a layer."""
        return [run.layer for run in self.runs for _ in range(run.count)]

    def distinct(self) -> dict[Layer, int]:
        """Each different layer and how often it occurs, in order of first appearance."""
        counts: dict[Layer, int] = {}
        for run in self.runs:
            counts[run.layer] = counts.get(run.layer, 0) + run.count
        return counts
