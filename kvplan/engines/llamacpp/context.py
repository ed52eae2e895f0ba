"""llama.cpp's context where nobody gave one.

ggml-org/llama.cpp at 0c1e57098: without ``-c`` llama-server begins with the model's own length, once for each
cache of its own, and ``--fit`` cuts it to what the memory holds (common/fit.cpp: n_ctx_max, n_ctx_min_total).
"""

from __future__ import annotations

from kvplan.engines.llamacpp.cache_layout.pool import Machine, cells_that_fit, context_for
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.engines.llamacpp.start.trained import own_length
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Settings


def served_context(
    model: Model, settings: Settings, options: LlamacppOptions, machine: Machine
) -> LlamacppOptions:
    """With the context that the server takes by itself (``fit_ctx``), where requests of a length are asked
    about: its own, or what the memory holds of it."""
    least, own = options.fit_ctx, own_length(model, options)
    given = options.ctx_size is not None or settings.max_model_len is not None
    if least is None or given or settings.tokens is None or own is None:
        return options
    context, cells = context_for(options, own, 1), own
    if settings.kv_cache_memory is not None:
        cells = cells_that_fit(machine, context, options, settings, own)
        cells = max(cells, min(least, own))
    return replace(options, ctx_size=cells * context.streams)
