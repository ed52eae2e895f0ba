"""How mlx_lm's server and its generate are called: ml-explore/mlx-lm 0.32.2 mlx_lm/server.py, generate.py and
cli.py."""

from __future__ import annotations

import re

from kvplan.engines.launch import Serve, Server
from kvplan.record import Json
from kvplan.units import parse_bytes

_BYTES = "--prompt-cache-bytes"
_OF_GENERATE = ("--prompt", "--max-kv-size", "--prompt-cache-file", "--system-prompt", "--verbose")
"""Options that mlx_lm.generate alone has: one request, and no finished ones beside it."""


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """``8GB`` and ``8G`` are decimal, a number alone is bytes (_parse_size)."""
    if any(name in options for name in _OF_GENERATE):
        serve.update({"decode_concurrency": 1, "prompt_concurrency": 1, "prompt_cache_size": 0})
        most = str(options.get("--max-kv-size", ""))
        if most.isdigit():
            serve["max_kv_size"] = int(most)
    given = options.get(_BYTES)
    if given is None:
        return ()
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([MG]B?)?", str(given), re.IGNORECASE | re.ASCII)
    if found is None:
        return (f"{_BYTES} {given}",)
    unit = (found[2] or "").upper().removesuffix("B")
    serve["prompt_cache_bytes"] = parse_bytes(f"{found[1]}{unit}B") if unit else int(float(found[1]))
    return ()


SERVER = Server(
    "mlx",
    starts=tuple(
        start
        for name in ("server", "generate")
        for start in ((f"mlx_lm.{name}",), ("mlx_lm", name), ("-m", "mlx_lm", name), ("-m", f"mlx_lm.{name}"))
    ),
    model=("--model",),
    images=(),
    translate=translate,
    translated=(_BYTES, *_OF_GENERATE),
    package="mlx-lm",
)
