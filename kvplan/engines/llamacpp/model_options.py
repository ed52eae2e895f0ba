"""llama.cpp's options for a model: ``-c 0`` is its own length, and stays so under ``--fit``
(ggml-org/llama.cpp at 0c1e57098 common/arg.cpp: fit_params_min_ctx)."""

from __future__ import annotations

from kvplan.engines.llamacpp.cache_layout.pool import streams_of
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.engines.llamacpp.start.trained import own_length
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Serving


def options_of(model: Model, settings: Serving) -> LlamacppOptions:
    """Every option with its value, ``ctx_size: 0`` as the model's own length.

    Raises KvplanError(bad-setting).
    """
    options = LlamacppOptions.of(settings)
    if options.ctx_size != 0:
        return options
    own = own_length(model, options)
    if own is None:
        raise KvplanError(
            "bad-setting",
            "--ctx-size 0 is the model's own length, which is not known",
            help="--ctx-size 32768",
        )
    return replace(options, ctx_size=own * (1 if options.fit is False else streams_of(options)))
