"""The options that transformers alone has; read by the command line without loading the engine.

huggingface/transformers 5.23.0 generation/configuration_utils.py (ContinuousBatchingConfig), cli/serve.py.
"""

from __future__ import annotations

from kvplan.engines.options import EngineOption

ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
CONTINUOUS = "continuous_batching"
OPTIONS = (
    EngineOption(
        CONTINUOUS, "flag", "Requests share a paged pool, as `transformers serve` with it.", default=False
    ),
    EngineOption(
        "attn_implementation", "word", "The class's attention: flash_attention_2 needs no masks.",
        default="sdpa", choices=ATTENTION,
    ),
    EngineOption(
        "max_memory_percent",
        "share",
        "Part of the memory free beside the model for continuous batching (default: 0.8 to 0.9).",
    ),
    EngineOption(
        "max_blocks_per_request",
        "count",
        "Width of the block tables of flash attention's decoding (default: 32).",
        lowest=0,
    ),
    EngineOption(
        "use_async_batching", "flag", "Two sets of batch tensors (default: with CUDA graphs)."
    ),
    EngineOption("use_cuda_graph", "flag", "CUDA graphs (default: with flash attention)."),
    EngineOption("return_logprobs", "flag", "Log probabilities beside the tokens.", default=False),
)  # fmt: skip
