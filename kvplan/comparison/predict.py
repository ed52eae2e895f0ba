"""An engine's prediction for a pool whose bytes are known up to the rounding of a log.

Tokens, blocks and concurrency never fall as memory grows (SGLang's tokens: as long as its state slots are
the same), so the values that a rounded figure leaves open are those between its two ends, and whether a
printed figure is one of them is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from kvplan.deployment.counts import ask
from kvplan.engines.base import Choice
from kvplan.engines.folders import part_of
from kvplan.engines.observed import Count, Figure, Observation, Rank
from kvplan.engines.observed.reading import reading_of
from kvplan.engines.traits import LENGTH, TOKENS, traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import SizeResult
from kvplan.settings import Settings

Number = int | Fraction
BYTES, BLOCKS = "bytes", "blocks"
BUDGET = "the memory budget"
"""The source of a pool that no engine printed."""
ENDLESS = 10**15
"""More bytes, or blocks, than any pool has."""


@record()
class Axis:
    """The quantity that decides a pool: its bytes or its blocks (kind), between low and high.

    source: where the figure comes from, for people. inferred: it was taken from the reported tokens or
    concurrency themselves, so that figure proves nothing.
    """

    kind: str
    low: int
    value: int
    high: int
    source: str
    inferred: bool = False

    @property
    def tight(self) -> bool:
        """Open by less than a hundredth of itself."""
        return (self.high - self.low) * 100 < max(self.value, 1)


@record()
class Figures:
    """One answer of the rules: tokens and concurrency as the release prints them, unrounded.

    slots, window_tokens, requests: of state and window pools and who may run, where the engine names them
    in its settings (SGLang).
    """

    blocks: int
    tokens: int
    concurrency: Fraction
    slots: int = 0
    window_tokens: int = 0
    requests: int = 0


_SIZES = ("max_mamba_cache_size", "swa_max_total_num_tokens", "max_running_requests")
NOTHING = Figures(0, 0, Fraction(0))


class Predictor:
    """The rules of one engine for one model and one set of settings, asked with different pools."""

    def __init__(self, model: Model, choice: Choice, settings: Settings) -> None:
        self.model, self.choice = model, choice
        self.settings = replace(settings, kv_cache_memory=None)
        self.result = ask(model, choice, self.settings)
        self._known: dict[tuple[str, int], Figures] = {}
        self._reading = reading_of(choice.engine.name)

    @property
    def full_request_bytes(self) -> int:
        """One request of max_model_len on the fullest GPU, as the engine counts it when it starts."""
        return self.result.per_gpu.reserved_bytes_per_request

    def sized(self, kind: str, amount: int) -> SizeResult:
        """The engine's answer for a pool of so many bytes or blocks."""
        if kind == BLOCKS:
            memory = replace(self.settings, kv_cache_memory=ENDLESS, num_gpu_blocks_override=max(amount, 1))
        else:
            memory = replace(self.settings, kv_cache_memory=max(amount, 0))
        return ask(self.model, self.choice, memory)

    def at(self, kind: str, amount: int) -> Figures:
        """Blocks, tokens and concurrency of a pool; zeros where the rules give none."""
        key = (kind, amount)
        if key not in self._known:
            self._known[key] = self._figures(kind, amount)
        return self._known[key]

    def _figures(self, kind: str, amount: int) -> Figures:
        result = self.sized(kind, amount)
        pool, refusal = result.pool, result.refusal
        if pool is not None:
            named = [result.settings.get(name, 0) for name in _SIZES]
            tokens = self._reading.printed_tokens(self.choice, pool, self.settings)
            return Figures(pool.num_blocks, tokens, _as_printed(pool.max_concurrency), *named)
        if refusal is None or not refusal.largest_max_model_len:
            return NOTHING
        # Too small for one request of full length: the pool is the one of a shorter length.
        shorter = replace(self.settings, max_model_len=refusal.largest_max_model_len)
        pool = Predictor(self.model, self.choice, shorter).sized(kind, amount).pool
        if pool is None:
            return NOTHING
        held = pool.num_blocks * pool.bytes_per_block
        whole = self.full_request_bytes
        tokens = self._reading.printed_tokens(self.choice, pool, self.settings)
        return Figures(pool.num_blocks, tokens, Fraction(held, whole) if whole else Fraction(0))


def allocated(predictor: Predictor, memory: int) -> Mapping[str, int]:
    """Bytes that the engine really allocates for a pool of that size, by the names of an observation's
    figures.

    An engine's package may offer ``allocations(model, settings)``: for every pipeline stage entries with
    name, k_bytes and v_bytes. Of each figure the smallest stage's counts, as of the ranks of a log.
    """
    allocations = getattr(part_of(predictor.choice.engine.name, "engine"), "allocations", None)
    if allocations is None:
        return {}
    stages: list[dict[str, int]] = []
    try:
        found = allocations(predictor.model, replace(predictor.settings, kv_cache_memory=memory))
    except KvplanError:
        return {}
    for stage in found:
        stages.append(dict.fromkeys(("kv_bytes", "mamba_conv_bytes", "mamba_ssm_bytes"), 0))
        for entry in stage:
            if entry.name == "state":
                stages[-1]["mamba_conv_bytes"] += int(entry.k_bytes)
                stages[-1]["mamba_ssm_bytes"] += int(entry.v_bytes)
            else:
                stages[-1]["kv_bytes"] += int(entry.k_bytes) + int(entry.v_bytes)
    return {name: min(stage[name] for stage in stages) for name in stages[0]}


def cells(predictor: Predictor) -> Mapping[str, int]:
    """Tokens of the caches where the context decides them; an engine's package may offer it (llama.cpp)."""
    found = getattr(part_of(predictor.choice.engine.name, "engine"), "cells", None)
    return {} if found is None else found(predictor.model, predictor.settings)


Pick = Callable[[Figures], Number]
PICKS: dict[str, Pick] = {
    "num_blocks": lambda figures: figures.blocks,
    "kv_tokens": lambda figures: figures.tokens,
    "max_concurrency": lambda figures: figures.concurrency,
    "mamba_slots": lambda figures: figures.slots,
    "swa_tokens": lambda figures: figures.window_tokens,
    "running_requests": lambda figures: figures.requests,
}
"""Figures read from an answer, in the order in which a pool is inferred from them."""


def narrow(predictor: Predictor, axis: Axis, name: str, figure: Figure) -> Axis | None:
    """The part of the axis on which the rules print this figure; None where no point of it does."""
    pick = PICKS[name]
    low = _first(predictor, axis, lambda figures: pick(figures) >= figure.low)
    above = _first(predictor, axis, lambda figures: pick(figures) > figure.high)
    if low >= above:
        return None
    return replace(axis, low=low, value=min(max(axis.value, low), above - 1), high=above - 1)


def _first(predictor: Predictor, axis: Axis, reached: Callable[[Figures], bool]) -> int:
    """The first point of the axis where `reached` holds (high + 1 where none does)."""
    low, high = axis.low, axis.high + 1
    while low < high:
        middle = (low + high) // 2
        if reached(predictor.at(axis.kind, middle)):
            high = middle
        else:
            low = middle + 1
    return low


def axis_of(observation: Observation, settings: Settings, budget: object | None = None) -> Axis | None:
    """The pool as the engine printed it, else as a budget predicts it; None where neither is there."""
    if settings.kv_cache_memory is not None:
        memory = settings.kv_cache_memory
        return Axis(BYTES, memory, memory, memory, "--kv-cache-memory")
    if traits_of(observation.engine).printed_pool in (TOKENS, LENGTH):
        # SGLang prints what it allocated, a page more than its tokens; llama.cpp allocates by length.
        return None
    printed = smallest_pool(observation)
    exact = observation.setting("kv_cache_memory_bytes")
    if isinstance(exact, int) and exact > 0 and (printed is None or printed.contains(exact)):
        return Axis(BYTES, exact, exact, exact, "kv_cache_memory_bytes")
    blocks = observation.count("num_blocks")
    if blocks is not None and (printed is None or printed.value <= 0):
        return Axis(BLOCKS, blocks.low, blocks.value, blocks.high, "the reported blocks")
    if printed is None and observation.refusal is not None:
        printed = observation.refusal.available_bytes
    if printed is not None:
        return Axis(BYTES, printed.low, printed.value, printed.high, f"the printed {printed.printed}")
    if budget is not None:
        parts = [getattr(budget, f"kv_pool{part}_bytes") for part in ("_low", "", "_high")]
        return Axis(BYTES, parts[0], parts[1], parts[2], BUDGET)
    return None


def smallest_pool(observation: Observation) -> Count | None:
    """The pool of the smallest rank; under pipeline parallelism the interval reaches to the largest stage's.

    Each stage divides its own memory by its own layers' bytes, and the fewest blocks count.
    """
    for name in ("available_kv_bytes", "kv_bytes"):
        printed = observation.count(name)
        if printed is None:
            continue
        stages: dict[int, int] = {}
        for rank, figure in observation.figures(name):
            if rank.pp is not None and isinstance(figure, Count):
                stages[rank.pp] = min(figure.high, stages.get(rank.pp, figure.high))
        return replace(printed, high=max([printed.high, *stages.values()]))
    return None


def ranks_of(observation: Observation) -> list[tuple[Rank, Count]]:
    """Every rank that printed its pool."""
    found = observation.figures("available_kv_bytes")
    return [(rank, figure) for rank, figure in found if isinstance(figure, Count)]


def _as_printed(concurrency: float) -> Fraction:
    """The digits that the engine's metrics show, which are not the float's own binary fraction."""
    return Fraction(repr(float(concurrency)))
