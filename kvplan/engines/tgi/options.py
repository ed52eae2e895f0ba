"""The options that TGI alone has; read by the command line without loading the engine.

huggingface/text-generation-inference 3.3 launcher/src/main.rs (Args), server models/globals.py (ATTENTION).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import EngineOption

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
OPTIONS = (
    EngineOption(
        "cuda_memory_fraction", "share", "Part of the GPU's memory that TGI may take.", default=Fraction(1)
    ),
    EngineOption(
        "max_concurrent_requests", "count", "Requests that TGI takes at once (default: 128).", default=128
    ),
    EngineOption(
        "speculate",
        "count",
        "Tokens that TGI proposes a step, from what was seen before (default: none).",
        lowest=0,
        default=0,
    ),
    EngineOption(
        "tgi_attention",
        "word",
        "TGI's variable ATTENTION (default: by the width of a head).",
        choices=tuple(BLOCKS),
        served=False,
        planned=True,
    ),
)
