"""The options that TGI alone has; read by the command line without loading the engine.

huggingface/text-generation-inference 3.3 launcher/src/main.rs (Args), server models/globals.py (ATTENTION).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import EngineOptions, option, options_of
from kvplan.record import record

BLOCKS = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}
"""ATTENTION → BLOCK_SIZE."""
ONLINE = {
    "fp8": "fp8",
    "bitsandbytes-nf4": "bitsandbytes",
    "bitsandbytes-fp4": "bitsandbytes",
    "bitsandbytes": "bnb-8bit",
    "eetq": "int8",
}
"""``--quantize`` of a checkpoint that is not quantised → what its matrices are then: fp8 with a scale a
matrix (layers/fp8.py), four bits with scales of one byte (layers/bnb.py, compress_statistics), int8 with a
scale an output (layers/eetq.py). lm_head and embeddings stay as they are (layers/tensor_parallel.py,
TensorParallelHead)."""
UNKNOWN_WORDS = ("exl2", "marlin")
"""Formats of checkpoints whose bytes are not read here."""


@record()
class TgiOptions(EngineOptions):
    """The options that TGI alone has."""

    cuda_memory_fraction: Fraction = option(
        "share", "Part of the GPU's memory that TGI may take.", Fraction(1)
    )
    max_concurrent_requests: int = option("count", "Requests that TGI takes at once (default: 128).", 128)
    speculate: int = option(
        "count", "Tokens that TGI proposes a step, from what was seen before (default: none).", 0, lowest=0
    )
    tgi_attention: str | None = option(
        "word",
        "TGI's variable ATTENTION (default: by the width of a head).",
        choices=tuple(BLOCKS),
        served=False,
        planned=True,
    )


OPTIONS = options_of(TgiOptions)
