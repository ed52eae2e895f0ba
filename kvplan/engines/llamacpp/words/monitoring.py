"""llama.cpp's series: ggml-org/llama.cpp tools/server/README.md, "GET /metrics". Its page says neither how
full the cache is nor how long a request waited."""

from __future__ import annotations

from kvplan.engines.monitored import Series

SERIES = Series(
    running=(("0", "llamacpp:requests_processing"),),
    waiting=(("0", "llamacpp:requests_deferred"),),
    switch="--metrics",
)
