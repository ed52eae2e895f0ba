"""The rows: every figure that an engine printed beside what its rules say of it."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.comparison.predict import BLOCKS, BYTES, ENDLESS, PICKS, Axis, Predictor, allocated, cells, narrow
from kvplan.comparison.results import ComparedRow, Unit, row_of
from kvplan.engines.observed import Count, Figure, Observation, Refusal, total
from kvplan.engines.observed.reading import reading_of
from kvplan.engines.traits import LENGTH, TOKENS, traits_of
from kvplan.record import replace
from kvplan.results import SizeResult

UNITS: dict[str, Unit] = {
    "num_blocks": "blocks",
    "kv_tokens": "tokens",
    "max_concurrency": "×",
    "mamba_slots": "slots",
    "swa_tokens": "tokens",
    "running_requests": "requests",
}
ALLOCATED = ("kv_bytes", "mamba_conv_bytes", "mamba_ssm_bytes")
MEMORY_REFUSALS = ("kv-cache-too-small", "no-memory-for-blocks", "too-few-state-blocks")
"""Refusals that follow from the pool; others (a busy GPU, out of memory) do not."""


def pool_figures(observation: Observation) -> dict[str, Figure]:
    """The engine's report of its pool, by the names of PICKS."""
    found = {name: observation.get(name) for name in PICKS}
    refusal = observation.refusal
    if refusal is not None:
        found["kv_tokens"] = found["kv_tokens"] or refusal.kv_tokens
        found["num_blocks"] = found["num_blocks"] or refusal.state_blocks
    return {name: figure for name, figure in found.items() if figure is not None and figure.value > 0}


def infer_axis(predictor: Predictor, observation: Observation) -> Axis | None:
    """The pool that prints the first reported figure; None where no pool does."""
    printed = traits_of(observation.engine).printed_pool
    if printed == LENGTH:
        return None
    kind = BLOCKS if printed == BLOCKS else BYTES
    figures = pool_figures(observation)
    for name, figure in figures.items():
        whole = Axis(kind, 0, ENDLESS, ENDLESS, f"the reported {WORDS[name]}", inferred=True)
        # Where one more slot of states begins, tokens fall: only between two such points do they grow.
        slots = figures.get("mamba_slots")
        with_slots = None if slots is None else narrow(predictor, whole, "mamba_slots", slots)
        found = None if with_slots is None else narrow(predictor, with_slots, name, figure)
        found = found or narrow(predictor, whole, name, figure)
        if found is not None:
            return replace(found, value=found.low)
    return None


WORDS = {
    "num_blocks": "blocks",
    "kv_tokens": "tokens",
    "max_concurrency": "concurrency",
    "mamba_slots": "state slots",
    "swa_tokens": "window tokens",
    "running_requests": "requests",
}


def pool_rows(predictor: Predictor, axis: Axis, observation: Observation) -> list[ComparedRow]:
    """Blocks, tokens and concurrency. A row agrees where one pool prints it and all that agreed before it."""
    rows, left = [], axis
    given = axis.inferred or axis.kind == BLOCKS
    for name, figure in pool_figures(observation).items():
        pick = PICKS[name]
        low, value, high = (
            pick(predictor.at(axis.kind, amount)) for amount in (axis.low, axis.value, axis.high)
        )
        if given and axis.source == f"the reported {WORDS[name]}":
            row = ComparedRow(name, UNITS[name], figure.value, figure.printed, line=figure.line)
            rows.append(replace(row, explanation="the pool was taken from this figure"))
            continue
        narrowed = narrow(predictor, left, name, figure)
        left = narrowed or left
        agrees = narrowed is not None
        row = ComparedRow(name, UNITS[name], figure.value, figure.printed, value, low, high, agrees)
        rows.append(replace(row, line=figure.line))
    return rows


def refusal_rows(
    predictor: Predictor, axis: Axis | None, observation: Observation, *, seqs_known: bool = False
) -> list[ComparedRow]:
    """Whether the engine starts, and what it says where it does not.

    seqs_known: max_num_seqs is no default, so a state pool with fewer blocks is a reason not to start.
    """
    refusal = observation.refusal
    if refusal is not None and refusal.kind not in MEMORY_REFUSALS:
        return []
    ends = [predictor.result] if axis is None else [predictor.sized(axis.kind, at) for at in _ends(axis)]
    starts = [_starts(result, predictor, seqs_known=seqs_known) for result in ends]
    if refusal is None and True in starts:
        return []
    why = next((result.refusal.message for result in ends if result.refusal is not None), None)
    rows = [_starts_row(refusal, starts, why)]
    if refusal is None:
        return rows
    if refusal.needed_bytes is not None:
        rows.append(row_of("needed_kv_bytes", "bytes", refusal.needed_bytes, predictor.full_request_bytes))
    if refusal.estimated_max_model_len is not None and axis is not None:
        lengths = [_largest(result) for result in ends]
        if None not in lengths:
            low, value, high = (length or 0 for length in lengths)
            rows.append(
                row_of("estimated_max_model_len", "tokens", refusal.estimated_max_model_len, value, low, high)
            )
    return rows


def _starts_row(refusal: Refusal | None, starts: list[bool], why: str | None) -> ComparedRow:
    """Whether the engine starts, as it said and as the rules say. why: the rules' own reason against it."""
    said, agrees = refusal is None, (refusal is None) in starts
    row = ComparedRow(
        "starts", "", said, "yes" if said else "no", said if agrees else not said, min(starts), max(starts)
    )
    line = refusal.line if refusal else 0
    return replace(row, overlaps=agrees, line=line, explanation=None if agrees else why)


def _ends(axis: Axis) -> tuple[int, int, int]:
    return axis.low, axis.value, axis.high


def _starts(result: SizeResult, predictor: Predictor, *, seqs_known: bool) -> bool:
    if result.refusal is not None:
        return False
    pool = result.pool
    states = seqs_known and predictor.result.settings.get("mamba_cache_mode") is not None
    return not (states and pool is not None and pool.num_blocks < pool.max_num_seqs)


def _largest(result: SizeResult) -> int | None:
    return None if result.refusal is None else result.refusal.largest_max_model_len


def layout_rows(predictor: Predictor, observation: Observation) -> Iterator[ComparedRow]:
    """Block size and padding layers."""
    size = observation.count("block_size")
    own = predictor.result.settings.get("block_size")
    if size is not None and isinstance(own, int):
        yield row_of("block_size", "tokens", size, own)
    padding = observation.count("padding_layers")
    if padding is not None:
        layers = padding_layers(predictor)
        if layers:
            yield row_of("padding_layers", "layers", padding, max(layers))


def padding_layers(predictor: Predictor) -> list[int]:
    """Layers that a group kind pays for without having them, one entry a kind; [] where groups differ."""
    pool = predictor.sized(BLOCKS, 1024).pool
    if pool is None:
        pool = predictor.sized(BLOCKS, ENDLESS).pool
    if pool is None or len({group.page_bytes for group in pool.groups}) != 1:
        return []
    width = max(group.layers for group in pool.groups)
    kinds: dict[str, int] = {}
    for group in pool.groups:
        kinds[group.kind] = kinds.get(group.kind, 0) + width - group.layers
    return [missing for missing in kinds.values() if missing]


def cache_rows(predictor: Predictor, axis: Axis | None, observation: Observation) -> Iterator[ComparedRow]:
    """The bytes of the caches, where length or tokens decide them: llama.cpp and SGLang."""
    printed_pool = traits_of(observation.engine).printed_pool
    if printed_pool == LENGTH:
        for name, amount in cells(predictor).items():
            printed = observation.count(name)
            if printed is not None:
                yield row_of(name, "cells", printed, amount)
        parts = (observation.count("kv_bytes"), observation.count("state_bytes"))
        whole = total(part for part in parts if part is not None)
        if whole is not None:
            why = reading_of(observation.engine).uncounted(predictor.settings, observation)
            said = ComparedRow("kv_bytes", "bytes", whole.value, whole.printed, line=whole.line)
            yield (
                row_of("kv_bytes", "bytes", whole, predictor.result.total.kv_bytes)
                if why is None
                else replace(said, explanation=why)
            )
    elif axis is not None and printed_pool == TOKENS:
        for name, figure in pool_figures(observation).items():
            axis = narrow(predictor, axis, name, figure) or axis
        predicted = allocated(predictor, axis.value)
        for name in ALLOCATED:
            reported = observation.count(name)
            if reported is not None and name in predicted:
                yield row_of(name, "bytes", reported, predicted[name])


def unpredicted(observation: Observation, names: tuple[str, ...]) -> list[ComparedRow]:
    """Figures with nothing to compare them with."""
    found = ((name, observation.get(name)) for name in names)
    return [
        ComparedRow(name, UNITS.get(name, "bytes"), figure.value, figure.printed, line=figure.line)
        for name, figure in found
        if isinstance(figure, Count) or figure is not None
    ]
