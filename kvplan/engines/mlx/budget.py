"""MLX: the memory that macOS lets the GPU use, less the weights, a step's activations and copies of caches.

ml-explore/mlx-lm 0.32.2 mlx_lm/utils.py (maybe_set_recommended_wired_limit): mlx wires up to the device's
max_recommended_working_set_size, Metal's recommendedMaxWorkingSetSize. Freed arrays stay in mlx's pool only
while there is room (mlx 0.32.4 mlx/backend/metal/allocator.cpp). No log of a Mac stands behind the lines
beside the weights: they come from the widths of a layer.
"""

from __future__ import annotations

from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit, Shortens
from kvplan.engines.budget.parts import Start, no_pool, once_a_start
from kvplan.engines.mlx.caches import Grows
from kvplan.engines.mlx.engine import Plan, plan_of
from kvplan.engines.mlx.prefill import activation_bytes
from kvplan.engines.mlx.weights import weights_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.results import BudgetLine, ModelWeights, left_over
from kvplan.settings import Serving
from kvplan.units import GIB

_QUEUED = 4
"""Layers whose arrays Metal's queue may hold at once; one was alive on a CPU, which has no queue."""
STARTS = Shortens(1, 0, "the memory")
"""No server has a longest request: where nobody asks for a length, it is what the memory holds."""


@once_a_start
def fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    """The budget of a Mac. Raises KvplanError(bad-setting)."""
    del choice
    gpu, _, total, reserved, warnings = start
    plan = plan_of(model, settings)
    try:
        weights, line, said = _weights(model, settings, plan)
    except KvplanError as error:
        if error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    lines = (line, _activations(model, plan), *reserved)
    left = max(0, total - sum(one.bytes for one in lines))
    lines = (*lines, _copies(plan, left))
    budget = left_over(gpu.slug, total, total, lines, calibrated=False)
    warnings += (*said, "MLX's memory beside weights and cache is an estimate: mind the interval of the pool")
    return Fit(budget, weights, warnings, shortens=STARTS)


def _weights(model: Model, settings: Serving, plan: Plan) -> tuple[ModelWeights, BudgetLine, tuple[str, ...]]:
    if settings.weights is not None:
        stated = settings.weights
        found = ModelWeights(stated, stated, "--weights")
        return found, BudgetLine("weights", stated, stated, stated, "--weights: as given"), ()
    decoder, encoders, word = weights_of(model, settings.quantization, plan.kept.element)
    source = f"{word}, as mlx_lm.convert stores each tensor"
    if encoders:
        source += f"; at most {encoders:,} B of encoders, which are loaded for a few models alone"
    named = settings.quantization is not None or model.quantization == "mlx"
    said = () if named else (f"weights as published, in {word}: -q 4bit counts mlx-community's build",)
    line = BudgetLine("weights", decoder, decoder, decoder + encoders, source)
    return ModelWeights(decoder, decoder, f"MLX {word}"), line, said


def _activations(model: Model, plan: Plan) -> BudgetLine:
    """Of one prompt's step, and the logits of its last token. Half of it where arrays are freed at once,
    twice as much where two layers' lie in Metal's queue. Further prompts count with their requests."""
    step, logits = activation_bytes(model, plan.step, plan.kept), 4 * model.vocab_size
    how = f"a prompt's step of {plan.step:,} tokens, by a layer's widths"
    return BudgetLine("activations", step + logits, step // 2, 2 * (step + logits) + GIB // 4, how)


def _copies(plan: Plan, left: int) -> BudgetLine:
    """A layer's cache lies there twice while it grows by 256 tokens, or a request joins the batch."""
    growing = [cache for cache in plan.caches if cache.grows is not Grows.STATE]
    whole = sum(cache.term.entry_bytes * cache.layers for cache in growing if cache.grows is Grows.WHOLE)
    largest = 2 * max((cache.term.entry_bytes for cache in growing), default=0)
    share = largest / whole if whole else 0.0
    one = min(left, int(left * min(share, 1.0) / (1 + min(share, 1.0))))
    several = min(left, _QUEUED * one)
    how = "a layer's cache is copied as it grows: one on a CPU, several in Metal's queue"
    return BudgetLine("copies of a layer's cache", one, 0, several, how)
