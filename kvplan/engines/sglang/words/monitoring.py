"""SGLang's series: sgl-project/sglang srt/observability/metrics_collector.py (before: srt/metrics/
collector.py) of 0.5.9, 0.5.12, 0.5.22, 0.5.23.

Before 0.5.22 no histogram has a request's time per output token: that between single tokens stands in.
"""

from __future__ import annotations

from kvplan.engines.monitored import Series

SERIES = Series(
    running=(("0", "sglang:num_running_reqs"),),
    waiting=(("0", "sglang:num_queue_reqs"),),
    usage=(("0", "sglang:token_usage"),),
    preemptions=(("0", "sglang:num_retracted_requests"),),
    finished=(("0", "sglang:num_requests"),),
    hits=(("0", "sglang:cached_tokens"),),
    queries=(("0", "sglang:prompt_tokens"),),
    ttft=(("0", "sglang:time_to_first_token_seconds"),),
    tpot=(
        ("0.5.22", "sglang:request_time_per_output_token_seconds"),
        ("0", "sglang:inter_token_latency_seconds"),
    ),
    per=("instance", "dp_rank"),
    label="model_name",
    switch="--enable-metrics",
)
