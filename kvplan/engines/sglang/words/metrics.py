"""SGLang's metrics page: the pool and the load ("gb" is a GiB there).

Source: sgl-project/sglang 0.5.23 observability/metrics_collector.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from kvplan.engines.observed import Count, Observation, Rank, Row, Setting, exact_count, total
from kvplan.engines.observed.page import MAX_ENGINES, Found, Live, Sample, most, sum_of
from kvplan.engines.observed.printed import parse_count

LIVE: Live = {
    "usage": (most, ("sglang:token_usage",)),
    "running": (sum_of, ("sglang:num_running_reqs",)),
    "waiting": (sum_of, ("sglang:num_queue_reqs",)),
    "preemptions": (sum_of, ("sglang:num_retracted_requests",)),
    "hit_rate": (most, ("sglang:cache_hit_rate",)),
    "used_tokens": (sum_of, ("sglang:num_used_tokens",)),
    "swa_usage": (most, ("sglang:swa_token_usage",)),
    "mamba_usage": (most, ("sglang:mamba_usage",)),
}
_ROW = {
    "kv_tokens": ("sglang:max_total_num_tokens", "n"),
    "swa_tokens": ("sglang:max_total_num_tokens_swa", "n"),
    "weights_bytes": ("sglang:weight_memory_usage_gb", "GiB"),
    "kv_bytes": ("sglang:kv_cache_memory_usage_gb", "GiB"),
    "free_after_bytes": ("sglang:startup_available_gpu_memory_gb", "GiB"),
    "block_size": ("sglang:page_size", "n"),
    "num_blocks": ("sglang:num_pages", "n"),
}


def observation(found: Found) -> Observation:
    """The pools of every data-parallel engine."""
    figures: dict[str, dict[str, Count]] = {}
    for field, (name, unit) in _ROW.items():
        for each in found.get(name, []):
            count = _gauge(each, unit)
            if count is not None:
                figures.setdefault(each.labels.get("dp_rank", ""), {}).setdefault(field, count)
    for each in found.get("sglang:graph_memory_usage_gb", []):
        count, row = _gauge(each, "GiB"), figures.setdefault(each.labels.get("dp_rank", ""), {})
        if count is not None:
            row["cuda_graph_bytes"] = total([*filter(None, [row.get("cuda_graph_bytes")]), count]) or count
    settings: dict[str, Setting] = {}
    length = next(iter(found.get("sglang:context_len", [])), None)
    if length is not None and length.value:
        settings["max_model_len"] = Setting(int(length.value), 0, "metrics")
    rows: list[Row] = []
    for rank, values in list(figures.items())[:MAX_ENGINES]:
        kept: dict[str, Any] = dict(values)
        rows.append(Row(Rank(f"DP{rank}", dp=int(rank)) if rank.isdecimal() else Rank(), **kept))
    return Observation("sglang", source="metrics", settings=MappingProxyType(settings), rows=tuple(rows))


def _gauge(each: Sample, unit: str) -> Count | None:
    value = each.value
    if value is None:
        return None
    if unit == "n":
        return exact_count(int(value))
    try:
        return parse_count(each.text, unit)
    except ValueError:
        return None
