"""A layer kind as ``kvplan explain`` shows it: its terms, their factors and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from kvplan.model import Model
from kvplan.record import fields
from kvplan.report.layout import (
    Piece,
    Screen,
    Span,
    line,
    table,
    wrapped,
)
from kvplan.results import LayerTerms, SizeResult
from kvplan.terms import Grows, Part, Term


def _title(model: Model, entry: LayerTerms) -> Screen:
    where = positions(at for at, layer in enumerate(model.layers()) if layer == entry.layer)
    words = f"layers {where}" if where else "draft layers of the speculative method"
    return [line(Span(f"{entry.count:,} × {entry.layer.family}", "bold"), Span(f"   {words}", "dim"))]


def layer_terms(model: Model, entry: LayerTerms, result: SizeResult) -> Screen:
    """A kind's terms and their sum."""
    screen = [*_title(model, entry), *_terms(entry.terms)]
    if not entry.terms:
        return [*screen, line("keeps nothing", indent=1)]
    text = f"one layer: {_layer_sum(entry, result)}"
    if entry.count > 1:
        text += f"; {entry.count:,} of them {layer_bytes(entry, result) * entry.count:,} B"
    return [*screen, *wrapped(text, indent=1, hang=2)]


def whole_layer(model: Model, entry: LayerTerms, result: SizeResult) -> Screen:
    screen = _title(model, entry)
    for part in entry.layer.parts:
        screen += wrapped(part.formula, indent=1, first="bytes = ", hang=10)
    if not entry.terms:
        screen.append(line("keeps nothing", indent=1))
    screen += _terms(entry.terms)
    origins = list(_origins(model, entry))
    if origins:
        screen += table(origins, "lrl", gap="  ")
    for source in dict.fromkeys(part.source for part in entry.layer.parts if part.source):
        screen += wrapped(source, style="dim", indent=1, first="from: ", hang=6)
    if entry.terms:
        screen += wrapped(f"one layer: {_layer_sum(entry, result)}", indent=1, hang=2)
    return screen


def _terms(terms: tuple[Term, ...]) -> Screen:
    """``k  8 num_kv_heads × 128 head_dim × 2 B (bfloat16) = 2,048 B a token``, one paragraph a term."""
    width = max((len(term.name) for term in terms), default=0) + 2
    screen: Screen = []
    for term in terms:
        # A no-break blank keeps a number and its name on one line.
        factors = [f"{factor.value:,}\xa0{factor.name}" for factor in term.factors]
        product = " ×\xa0".join([*factors, _element(term)])
        text = f"{product} =\xa0{term.entry_bytes:,}\xa0B {_held(term)}"
        rows = wrapped(text, indent=1, first=f"{term.name:<{width}}")
        screen += [tuple(Span(piece.text.replace("\xa0", " "), piece.style) for piece in row) for row in rows]
    return screen


def _element(term: Term) -> str:
    packing = term.packing
    size = f"{packing.bytes}" if packing.elements == 1 else f"{packing.bytes}/{packing.elements}"
    return f"{size}\xa0B ({packing.name})"


def _held(term: Term) -> str:
    """How many such entries are kept."""
    if term.grows is Grows.REQUEST:
        return "a request"
    if term.grows is Grows.ENCODER_TOKEN:
        return "an encoder token"
    if term.part is Part.WAITING:
        return f"for each token that waits until {term.stride:,} have come"
    if term.part is Part.FILLED:
        return f"once {term.stride:,} tokens have come"
    words = "a token" if term.stride == 1 else f"per {term.stride:,} tokens"
    if term.keep_last is not None:
        words += f", the newest {term.keep_last:,} only"
    if term.skip_last:
        words += f", all but the newest {term.skip_last:,}"
    return words


def _origins(model: Model, entry: LayerTerms) -> Iterator[list[Piece]]:
    """Each number that the terms were made of, and the config key it came from."""
    factors = {factor.name for term in entry.terms for factor in term.factors}
    for part in entry.layer.parts:
        keys = model.provenance.keys.get(part.family, {})
        for field in fields(part):
            value = getattr(part, field.name)
            if (
                value is None
                or field.name not in keys
                or not (field.name in factors or field.name in part.formula)
            ):
                continue
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            yield [field.name, shown, Span(f"= {keys[field.name]}", "dim")]


def _layer_sum(entry: LayerTerms, result: SizeResult) -> str:
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    parts = [f"{term.entries(tokens, encoder):,} × {term.entry_bytes:,}" for term in entry.terms]
    shown = " + ".join(parts) if len(parts) <= 3 else f"{len(parts)} terms"
    return f"{shown} = {layer_bytes(entry, result):,} B"


def layer_bytes(entry: LayerTerms, result: SizeResult) -> int:
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    return sum(term.bytes_at(tokens, encoder) for term in entry.terms)


def positions(places: Iterable[int], most: int = 6) -> str:
    """``0-4, 6-10``; a regular pattern as ``0, 4, 8 … 60 (every 4th)``; a long list is cut."""
    found = list(places)
    runs: list[tuple[int, int]] = []
    for place in found:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    steps = {after - before for before, after in pairwise(found)}
    if len(found) > most and len(steps) == 1 and steps != {1}:
        step = steps.pop()
        return f"{found[0]}, {found[1]}, {found[2]} … {found[-1]}" + (
            " (every other)" if step == 2 else f" (every {step}th)"
        )
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(texts) > most:
        return ", ".join(texts[:most]) + f" … {texts[-1]}"
    return ", ".join(texts)
