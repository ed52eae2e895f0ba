"""The options that transformers alone has; read by the command line without loading the engine.

huggingface/transformers 5.24.0 generation/configuration_utils.py (ContinuousBatchingConfig), cli/serve.py.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import EngineOptions, option, options_of
from kvplan.record import record

ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")


@record()
class TransformersOptions(EngineOptions):
    """The options that transformers alone has."""

    continuous_batching: bool = option(
        "flag", "Requests share a paged pool, as `transformers serve` with it.", False
    )
    attn_implementation: str = option(
        "word", "The class's attention: flash_attention_2 needs no masks.", "sdpa", choices=ATTENTION
    )
    max_memory_percent: Fraction | None = option(
        "share", "Part of the memory free beside the model for continuous batching (default: 0.8 to 0.9)."
    )
    max_blocks_per_request: int | None = option(
        "count", "Width of the block tables of flash attention's decoding (default: 32).", lowest=0
    )
    use_async_batching: bool | None = option("flag", "Two sets of batch tensors (default: with CUDA graphs).")
    use_cuda_graph: bool | None = option("flag", "CUDA graphs (default: with flash attention).")
    return_logprobs: bool = option("flag", "Log probabilities beside the tokens.", False)


OPTIONS = options_of(TransformersOptions)
