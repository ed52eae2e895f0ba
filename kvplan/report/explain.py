"""The screen of ``kvplan explain``: the terms that the answer was multiplied from, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any

from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.record import dumped
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.notes import help_lines, source_lines, warning_lines
from kvplan.report.words import count, engine_title, gpus_of_request, of_bytes, size_words
from kvplan.results import LayerTerms, Pool, SizeResult
from kvplan.terms import Grows, Part, Term


def explain_screen(model: Model, result: SizeResult, pool: Pool | None, *, rules_file: str) -> Screen:
    """Each different layer with its terms, the sum at this length, and what the engine makes of it.

    pool: the engine's block pool, of any size, where it has one.
    """
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    data = sum(_layer_bytes(entry, tokens, encoder) * entry.count for entry in result.layers)
    lengths = count(tokens, "token") + (f" (and {encoder:,} encoder tokens)" if encoder else "")
    kinds = count(len(result.layers), "kind")
    screen = wrapped(
        f"{model.id} has {count(model.num_layers, 'layer')} of {kinds}; one request of {lengths} leaves"
        f" {of_bytes(data)} ({size_words(data)}) of data in its cache."
    )
    for entry in result.layers:
        screen += [BLANK, *_layer(model, entry, tokens, encoder)]
    screen += [BLANK, *_sum(result, tokens, encoder, data)]
    screen += [BLANK, *(_engine(result, pool, data) if result.sized else _refused(result))]
    if result.warnings:
        screen += [BLANK, *warning_lines(result.warnings)]
    return [*screen, BLANK, *source_lines(result, rules_file)]


def _layer(model: Model, entry: LayerTerms, tokens: int, encoder: int) -> Screen:
    where = positions(at for at, layer in enumerate(model.layers()) if layer == entry.layer)
    draft = "" if where else "draft layers of the speculative method"
    title = f"{entry.count:,} × {entry.layer.family}"
    screen: Screen = [line(Span(title, "bold"), Span(f"   {('layers ' + where) if where else draft}", "dim"))]
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
        screen.append(line(f"one layer: {_layer_sum(entry, tokens, encoder)}", indent=1))
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


def _layer_sum(entry: LayerTerms, tokens: int, encoder: int) -> str:
    parts = [f"{term.entries(tokens, encoder):,} × {term.entry_bytes:,}" for term in entry.terms]
    shown = " + ".join(parts) if len(parts) <= 3 else f"{len(parts)} terms"
    return f"{shown} = {_layer_bytes(entry, tokens, encoder):,} B"


def _layer_bytes(entry: LayerTerms, tokens: int, encoder: int) -> int:
    return sum(term.bytes_at(tokens, encoder) for term in entry.terms)


def _sum(result: SizeResult, tokens: int, encoder: int, data: int) -> Screen:
    rows: list[list[Piece]] = []
    for entry in result.layers:
        one = _layer_bytes(entry, tokens, encoder)
        rows.append(
            [f"{entry.count:,}", f"× {entry.layer.family}", f"× {one:,}", f"= {one * entry.count:,} B"]
        )
    rows.append(["", Span("sum", "bold"), "", Span(f"{data:,} B", "bold")])
    return [line(Span(f"Sum at {count(tokens, 'token')}", "bold")), *table(rows, "rlrr", gap=" ")]


def _refused(result: SizeResult) -> Screen:
    """The engine took the model not at all: it has no figures."""
    assert result.refusal is not None
    head = f"{engine_title(result.engine)} would not serve it: {result.refusal.message}"
    return [*wrapped(head), *help_lines(result.refusal.help)]


def _engine(result: SizeResult, pool: Pool | None, data: int) -> Screen:
    """How the engine's own figure differs from the sum, and in which units it allocates."""
    gpus, gpu = gpus_of_request(result), result.per_gpu
    held = result.total.kv_bytes_per_request
    screen: Screen = [line(Span(f"Under {engine_title(result.engine)}", "bold"))]
    rows: list[list[Piece]] = [["one request, one GPU", f"{gpu.kv_bytes_per_request:,} B"]]
    if gpus > 1:
        rows.append([f"one request, all {gpus} GPUs", f"{held:,} B"])
    if held != data:
        rows.append(["more than the sum" if held > data else "less than the sum", f"{abs(held - data):,} B"])
    rows.append(["each further token, one GPU", of_bytes(gpu.bytes_per_token)])
    if gpu.fixed_bytes_per_request:
        rows.append(["fixed for one request, one GPU", f"{gpu.fixed_bytes_per_request:,} B"])
    screen += table(rows, "lr")
    if pool is not None and pool.groups:
        screen += _blocks(result, pool)
    rule = traits_of(result.engine.name).at_once
    if rule is not None:
        screen += wrapped(f"at once: {rule}", style="dim", indent=1, hang=2)
    return screen


# vllm-project/vllm 0.32 vllm/v1/kv_cache_interface.py, max_memory_usage_bytes of the spec classes.
_WINDOW = "a window takes blocks for window - 1 tokens and for all that are in flight, and one more"
_CHARGES = {
    "sliding_window": _WINDOW,
    "sliding_window_mla": _WINDOW,
    "chunked_local_attention": "a chunk takes blocks for its tokens and for all that are in flight",
    "mamba": "a state takes a whole block, as large as an attention block, for each copy that is kept",
    "cross_attention": "cross attention is reserved blocks for max_num_batched_tokens encoder tokens",
}


def _blocks(result: SizeResult, pool: Pool) -> Screen:
    """The groups that share the pool's blocks, and what a request takes of them."""
    heads = ("group", "layers", "tokens/block", "bytes/page", "blocks at full length")
    rows: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    rows += [
        [g.kind, f"{g.layers:,}", f"{g.block_size:,}", f"{g.page_bytes:,}", f"{g.blocks_per_request:,}"]
        for g in pool.groups
    ]
    own = result.per_gpu.kv_bytes_per_request
    blocks = own // pool.bytes_per_block
    product = f"{blocks:,} blocks × {pool.bytes_per_block:,} B = {own:,} B"
    screen = [BLANK, *table(rows, "lrrrr")]
    if blocks * pool.bytes_per_block == own:
        screen.append(line(f"one request of {count(result.request.tokens, 'token')}: {product}", indent=1))
    if pool.running_blocks is not None and pool.prompt_blocks is not None and pool.running_blocks != blocks:
        held = (
            f"{pool.running_blocks:,} blocks once its prompt is computed, {pool.prompt_blocks:,} to admit it"
        )
        screen.append(line(held, indent=1))
    for kind in dict.fromkeys(group.kind for group in pool.groups):
        if kind in _CHARGES:
            screen += wrapped(_CHARGES[kind], style="dim", indent=1, hang=2)
    return screen


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


def explain_dump(model: Model, result: SizeResult) -> dict[str, Any]:
    """The JSON of ``kvplan explain --json``: that of size, and formula, source, keys, positions and sums."""
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    layers = [_layer_dump(model, entry, tokens, encoder) for entry in result.layers]
    return {**result.model_dump(), "layers": layers, "data_bytes": sum(entry["bytes"] for entry in layers)}


def _layer_dump(model: Model, entry: LayerTerms, tokens: int, encoder: int) -> dict[str, Any]:
    one = _layer_bytes(entry, tokens, encoder)
    return {
        "family": entry.layer.family,
        "count": entry.count,
        "positions": [at for at, layer in enumerate(model.layers()) if layer == entry.layer],
        "parts": [
            {
                "family": part.family,
                "formula": part.formula,
                "source": part.source,
                "parameters": {field.name: getattr(part, field.name) for field in fields(part)},
                "keys": dict(model.provenance.keys.get(part.family, {})),
            }
            for part in entry.layer.parts
        ],
        "terms": [
            {
                **dumped(term),
                "entries": term.entries(tokens, encoder),
                "bytes": term.bytes_at(tokens, encoder),
            }
            for term in entry.terms
        ],
        "bytes_per_layer": one,
        "bytes": one * entry.count,
    }
