"""Continuous batching: a part of what is free beside the loaded model, less what a batch needs.

huggingface/transformers 5.24.0 generation/continuous_batching/cache.py (PagedAttentionMemoryHandler). Nothing
is measured: these lines are the library's own arithmetic, whatever the class then takes.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.dtypes import scalar
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit, Shortens
from kvplan.engines.budget.parts import (
    REPACKED,
    Start,
    context_line,
    kernels_of,
    no_pool,
    once_a_start,
    sources_for,
    weight_lines,
)
from kvplan.engines.transformers.options import TransformersOptions
from kvplan.engines.transformers.paged import NotPagedError, Paged, paged_of
from kvplan.engines.transformers.sectors import TRASH, footprint, needs, sectors_left
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.results import Budget, BudgetLine, ModelWeights, SizeResult, exact
from kvplan.settings import Serving, Settings
from kvplan.weights.ranks import Parallel

SAMPLING, GREEDY = Fraction(8, 10), Fraction(9, 10)
"""max_memory_percent with logits processors (a generation config that samples) and without
(initialization.py)."""
_NONE = "transformers divides no GPU's memory: --continuous-batching does, --kv-cache-memory 16GiB states it"
_ONE = Parallel(1, 1, vocabulary_multiple=1)
STARTS = Shortens(1, 0, "the pool")
"""It starts with any pool and has no longest request: where nobody asks for a length, what one may have is
what the pool holds (cache.py; a longer one fails)."""
_END = {"bytes": "bytes", "low_bytes": "high_bytes", "high_bytes": "low_bytes"}
"""The end of a pool → that of the lines which leave it."""


def fit(model: Model, choice: Choice, settings: Settings) -> Fit:
    """The budget; none where requests have caches of their own. Raises KvplanError(bad-setting)."""
    own = TransformersOptions.of(settings)
    return _fit(model, choice, settings) if own.continuous_batching else Fit(None, None, (_NONE,))


@once_a_start
def _fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    gpu, started, total, reserved, warnings = start
    own = TransformersOptions.of(settings)
    share = own.max_memory_percent
    dtype = scalar(str(started.settings["dtype"]))
    try:
        paged = paged_of(model, settings, own)
        kernels = kernels_of(choice, model, settings)
        facts, loaded, said = weight_lines(
            sources_for(model, settings), model, settings, _ONE, dtype, kernels
        )
    except (KvplanError, NotPagedError) as error:
        if not isinstance(error, KvplanError) or error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    plain = tuple(line for line in loaded if line.name != REPACKED or model.quantization)
    lines = (*plain, context_line(1), *reserved)
    shares = (SAMPLING, SAMPLING, GREEDY) if share is None else (share, share, share)
    if not shares[0]:
        raise KvplanError("bad-setting", "max_memory_percent is 0", help="it lies above 0")
    budget = _budget(gpu.slug, total, lines, paged, shares)
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    shown = (("max_memory_percent", float(shares[0])),)
    said = (*warnings, *said, *_words(paged, settings, given=share is not None))
    return Fit(budget, weights, said, shown, shortens=STARTS)


def divided(model: Model, settings: Settings, started: SizeResult) -> Parallel:
    """The weights of the one device (`kvplan.engines.budget.parts.parallel_for`)."""
    del model, settings, started
    return _ONE


def _words(paged: Paged, settings: Serving, *, given: bool) -> tuple[str, ...]:
    """Unstated settings that decide the pool."""
    said = ["transformers' memory beside the cache is its own estimate: mind the interval of the pool"]
    if not given:
        said.append("max_memory_percent: 0.8 was taken, as with a sampling generation config; 0.9 without")
    if not paged.batch.flash and "attn_implementation" not in settings.own:
        said.append("attention by sdpa was taken; --attn-implementation flash_attention_2 needs no masks")
    return tuple(said)


def _budget(
    gpu: str, total: int, lines: tuple[BudgetLine, ...], paged: Paged, shares: tuple[Fraction, ...]
) -> Budget:
    """The pool of whole sectors, likely, safe and at most: the driver's total less what is used, times
    max_memory_percent, less the batch's tensors, reading the whole cache back and the masks of attention
    other than flash's."""
    geometry, beside = paged.geometry, needs(paged.geometry, paged.batch)
    sectors = {}
    for (end, of_lines), share in zip(_END.items(), shares, strict=True):
        free = max(0, total - sum(getattr(line, of_lines) for line in lines))
        available = int(free * float(share))
        found = sectors_left(geometry, beside, available)
        sectors[end] = found if found > 0 and footprint(geometry, beside, found) <= available else 0
    size = geometry.sector_bytes
    likely, low, high = (beside.of(sectors[end]) for end in _END)
    batch = BudgetLine(
        "batch, cache reads",
        likely,
        low,
        high,
        f"the library's reserve for batches of {paged.batch.tokens:,} tokens that read the whole cache",
    )
    if sectors["bytes"]:
        trash = exact("trash sectors", TRASH * size, "sectors that padding reads and writes")
        lines = (*lines, batch, trash)
    used = sum(line.bytes for line in lines)
    return Budget(
        gpu=gpu,
        total_bytes=total,
        lines=lines,
        kv_pool_bytes=sectors["bytes"] * size,
        kv_pool_low_bytes=sectors["low_bytes"] * size,
        kv_pool_high_bytes=sectors["high_bytes"] * size,
        unused_bytes=max(0, total - used - sectors["bytes"] * size),
        calibrated=False,
    )
