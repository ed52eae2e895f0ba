"""The options that TGI alone has; read by the command line without loading the engine.

huggingface/text-generation-inference 3.3 launcher/src/main.rs (Args), server models/globals.py (ATTENTION).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import EngineOption

BLOCKS = {"flashinfer": 1, "flashdecoding": 256, "paged": 16}
"""ATTENTION → BLOCK_SIZE."""
OPTIONS = (
    EngineOption(
        "cuda_memory_fraction", "share", "Part of the GPU's memory that TGI may take.", default=Fraction(1)
    ),
    EngineOption(
        "max_concurrent_requests", "count", "Requests that TGI takes at once (default: 128).", default=128
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
