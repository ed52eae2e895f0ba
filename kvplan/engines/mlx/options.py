"""The options that MLX alone has; read by the command line without loading the engine.

ml-explore/mlx-lm 0.32.2 mlx_lm/server.py and generate.py (their parsers).
"""

from __future__ import annotations

from kvplan.engines.options import EngineOptions, option, options_of
from kvplan.record import record

BITS, GROUPS = ("2", "3", "4", "5", "6", "8"), ("32", "64", "128")
"""The sizes that mlx.core.quantize takes (ml-explore/mlx 0.32.4 mlx/ops.cpp)."""
PROMPTS, ANSWERS, STEP = 8, 32, 2048
"""--prompt-concurrency, --decode-concurrency and --prefill-step-size, where nobody says otherwise."""
KEPT_PROMPTS = 10
"""--prompt-cache-size, where nobody says otherwise."""


@record()
class MlxOptions(EngineOptions):
    """The options that MLX alone has."""

    kv_bits: str | None = option(
        "word", "Bits of a quantised cache; then one request at a time.", choices=BITS
    )
    kv_group_size: str = option("word", "Numbers that share a scale and a bias.", "64", choices=GROUPS)
    quantized_kv_start: int = option("count", "Tokens from which the cache is quantised.", 5000, lowest=0)
    prompt_concurrency: int = option("count", "Prompts that are read at once.", PROMPTS)
    prompt_cache_size: int = option(
        "count", "Caches of finished requests that the server keeps.", KEPT_PROMPTS, lowest=0
    )
    prompt_cache_bytes: int | None = option(
        "size", "Bytes that running and finished requests' caches may take together."
    )
    max_kv_size: int | None = option(
        "count",
        "Newest tokens that stay, as mlx_lm.generate has it: one request at a time.",
        served=False,
        planned=True,
    )


OPTIONS = options_of(MlxOptions)
