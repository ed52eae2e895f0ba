"""vLLM's series: vllm-project/vllm v1/metrics/loggers.py of 0.8.5, 0.9.2, 0.10.2, 0.11.0 … 0.33.0.

Before 0.11 no histogram has a request's time per output token: that of single tokens stands in.
"""

from __future__ import annotations

from kvplan.engines.monitored import Series

SERIES = Series(
    running=(("0", "vllm:num_requests_running"),),
    waiting=(("0", "vllm:num_requests_waiting"),),
    usage=(("0.10", "vllm:kv_cache_usage_perc"), ("0", "vllm:gpu_cache_usage_perc")),
    preemptions=(("0", "vllm:num_preemptions"),),
    finished=(("0", "vllm:request_success"),),
    hits=(("0.10", "vllm:prefix_cache_hits"), ("0", "vllm:gpu_prefix_cache_hits")),
    queries=(("0.10", "vllm:prefix_cache_queries"), ("0", "vllm:gpu_prefix_cache_queries")),
    ttft=(("0", "vllm:time_to_first_token_seconds"),),
    tpot=(
        ("0.11", "vllm:request_time_per_output_token_seconds"),
        ("0", "vllm:time_per_output_token_seconds"),
    ),
    per=("instance", "engine"),
    label="model_name",
)
