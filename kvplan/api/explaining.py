"""``kvplan.explain``: the answer of `size` with the formula, source, keys and sum of every layer's terms."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.api.suggestions import with_suggestions
from kvplan.deployment.answer import answered
from kvplan.deployment.counts import PLENTY, as_started, ask
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import resolve
from kvplan.dtypes import Packing
from kvplan.model import Model
from kvplan.record import Json, changed, field_names, fields, record, replace
from kvplan.results import LayerTerms, Pool, SizeResult
from kvplan.terms import Grows, Part, Shards, Term
from kvplan.units import Bytes, Count, Positive


@record()
class ExplainedPart:
    """One part of a layer."""

    family: str
    formula: str
    source: str
    parameters: Json
    keys: Json
    """keys of the config that the parameters were read from"""


@record()
class ExplainedTerm:
    """One stored thing of one layer, with what a request of this length holds of it."""

    name: str
    factors: tuple[tuple[str, int], ...]
    """names and values, in the order in which they are multiplied"""
    packing: Packing
    entry_bytes: Bytes
    grows: Grows
    part: Part
    keep_last: Count | None
    skip_last: Count
    stride: Positive
    shards: Shards
    entries: Count
    bytes: Bytes


@record()
class ExplainedLayer:
    """`count` equal layers."""

    family: str
    count: Positive
    positions: tuple[int, ...]
    parts: tuple[ExplainedPart, ...]
    terms: tuple[ExplainedTerm, ...]
    bytes_per_layer: Bytes
    bytes: Bytes
    """of all of them"""


class Basis(NamedTuple):
    """An explanation's model, its answer as `size` gives it, and a pool of plenty of memory."""

    model: Model
    result: SizeResult
    pool: Pool | None


@record()
class Explanation(SizeResult):
    """The answer of `kvplan explain --json` and of `kvplan.explain(...)`: that of `size`, its layers with
    formula, source, keys, positions and sums."""

    layers: tuple[ExplainedLayer, ...]  # type: ignore[assignment]
    data_bytes: Bytes = 0
    """all terms of all layers, one request"""
    basis: Basis | None = None
    """not in the JSON"""

    _JSON = (*SizeResult._JSON, "data_bytes")  # type: ignore[assignment]

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each term of each kind of layer: ``pandas.DataFrame(found.to_rows())``."""
        return [
            {
                "family": layer.family, "count": layer.count, "name": term.name,
                "entry_bytes": term.entry_bytes, "entries": term.entries, "bytes": term.bytes,
            }
            for layer in self.layers for term in layer.terms
        ]  # fmt: skip


def explained(question: Question, *warnings: str) -> Explanation:
    """The explanation of one question; warnings: what is said before its own.

    Without the GPU's budget, so that models that do not fit are explained too."""
    deployment = resolve(question)
    model, choice = deployment.model, replace(deployment.choice, pool=None)
    settings = as_started(model, deployment.choice, deployment.settings)
    bare = replace(deployment, choice=choice, settings=settings)
    result = _as_deployed(with_suggestions(answered(bare)).result, answered(deployment).result)
    result = replace(result, warnings=(*warnings, *result.warnings))
    roomy = ask(model, choice, replace(settings, kv_cache_memory=PLENTY)).pool
    layers = tuple(_layer(model, entry, result) for entry in result.layers)
    same = {name: getattr(result, name) for name in field_names(SizeResult)}
    data = sum(layer.bytes for layer in layers)
    return Explanation(**{**same, "layers": layers, "data_bytes": data, "basis": Basis(model, result, roomy)})


def _as_deployed(bare: SizeResult, deployed: SizeResult) -> SizeResult:
    """The answer without a GPU's budget with the bytes that the cache takes as it is deployed: of layers in
    host memory, for example, none."""
    if not deployed.sized or (bare.per_gpu, bare.total) == (deployed.per_gpu, deployed.total):
        return bare
    return changed(bare, per_gpu=deployed.per_gpu, total=deployed.total, warnings=deployed.warnings)


def _layer(model: Model, entry: LayerTerms, result: SizeResult) -> ExplainedLayer:
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    terms = tuple(_term(term, tokens, encoder) for term in entry.terms)
    one = sum(term.bytes for term in terms)
    parts = tuple(
        ExplainedPart(
            part.family,
            part.formula,
            part.source,
            {each.name: getattr(part, each.name) for each in fields(part)},
            dict(model.provenance.keys.get(part.family, {})),
        )
        for part in entry.layer.parts
    )
    positions = tuple(at for at, layer in enumerate(model.layers()) if layer == entry.layer)
    return ExplainedLayer(entry.layer.family, entry.count, positions, parts, terms, one, one * entry.count)


def _term(term: Term, tokens: int, encoder: int) -> ExplainedTerm:
    return ExplainedTerm(
        term.name,
        tuple((factor.name, factor.value) for factor in term.factors),
        term.packing,
        term.entry_bytes,
        term.grows,
        term.part,
        term.keep_last,
        term.skip_last,
        term.stride,
        term.shards,
        term.entries(tokens, encoder),
        term.bytes_at(tokens, encoder),
    )
