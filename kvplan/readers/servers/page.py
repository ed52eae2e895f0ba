"""What an engine's Prometheus page says: the pool as an Observation, the load as a LiveSample.

Sources: vllm-project/vllm 0.32.0 v1/metrics/loggers.py and config/cache.py; sgl-project/sglang 0.5.23
observability/metrics_collector.py ("gb" is a GiB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from kvplan.live import LiveSample
from kvplan.observation import Count, Note, Observation, Rank, Ratio, Row, Setting, exact_count, total
from kvplan.readers.logs.settings import VLLM, from_text
from kvplan.readers.servers.printed import parse_count
from kvplan.readers.servers.prometheus import Sample, number, samples

_PREFIXES = ("vllm:", "sglang:")
MAX_ENGINES = 4096


def observation_of_metrics(body: bytes) -> Observation | None:
    """Pool figures out of a metrics page; None where neither engine speaks there."""
    found = _named(samples(body, _PREFIXES))
    if any(name.startswith("vllm:") for name in found):
        return _vllm(found)
    return _sglang(found) if found else None


def live_sample(body: bytes) -> LiveSample | None:
    """The load out of a metrics page; None where neither engine speaks there."""
    found = _named(samples(body, _PREFIXES))
    for engine, names in _LIVE.items():
        if any(name.startswith(f"{engine}:") for name in found):
            values: dict[str, Any] = {}
            for field, (combine, choices) in names.items():
                values[field] = next((combine(found[name]) for name in choices if name in found), None)
            queries, hits = values.get("queries"), values.get("hits")
            if queries and hits is not None:
                values["hit_rate"] = Fraction(hits, queries)
            return LiveSample(engine, **values)
    return None


Found = Mapping[str, list[Sample]]


def _named(found: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Samples by name, in the spelling with a colon and without a counter's ``_total``."""
    named: dict[str, list[Sample]] = {}
    for each in found:
        name = each.name
        for prefix in _PREFIXES:
            if name.startswith(prefix.replace(":", "_")):
                name = prefix + name[len(prefix) :]
        named.setdefault(name.removesuffix("_total"), []).append(each)
    return named


def _engine_key(each: Sample) -> str:
    """Which data-parallel engine a sample is of; tensor-parallel ranks of one engine repeat each other."""
    labels = each.labels
    return f"{labels.get('engine', '')} {labels.get('dp_rank', '')} {labels.get('model_name', '')}"


def _by_engine(found: Iterable[Sample]) -> dict[str, Fraction]:
    largest: dict[str, Fraction] = {}
    for each in found:
        value = each.value
        if value is not None:
            key = _engine_key(each)
            largest[key] = max(value, largest.get(key, value))
    return largest


def _most(found: Iterable[Sample]) -> Fraction | None:
    return max(_by_engine(found).values(), default=None)


def _sum(found: Iterable[Sample]) -> int | None:
    values = _by_engine(found).values()
    return int(sum(values)) if values else None


Combine = Callable[[Iterable[Sample]], Any]
_LIVE: Mapping[str, Mapping[str, tuple[Combine, tuple[str, ...]]]] = {
    "vllm": {
        "usage": (_most, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        "running": (_sum, ("vllm:num_requests_running",)),
        "waiting": (_sum, ("vllm:num_requests_waiting",)),
        "preemptions": (_sum, ("vllm:num_preemptions",)),
        "queries": (_sum, ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")),
        "hits": (_sum, ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")),
    },
    "sglang": {
        "usage": (_most, ("sglang:token_usage",)),
        "running": (_sum, ("sglang:num_running_reqs",)),
        "waiting": (_sum, ("sglang:num_queue_reqs",)),
        "preemptions": (_sum, ("sglang:num_retracted_requests",)),
        "hit_rate": (_most, ("sglang:cache_hit_rate",)),
        "used_tokens": (_sum, ("sglang:num_used_tokens",)),
        "swa_usage": (_most, ("sglang:swa_token_usage",)),
        "mamba_usage": (_most, ("sglang:mamba_usage",)),
    },
}


def _vllm(found: Found) -> Observation:
    rows: list[Row] = []
    settings: dict[str, Setting] = {}
    notes: list[Note] = []
    configs = found.get("vllm:cache_config_info", [])
    for each in configs[:MAX_ENGINES]:
        labels = each.labels
        for key, known in VLLM.items():
            if key in labels:
                settings.setdefault(known or key, Setting(from_text(labels[key]), 0, "metrics"))
        engine = labels.get("engine", "")
        rank = Rank(f"engine {engine}", dp=int(engine)) if len(configs) > 1 and engine.isdecimal() else Rank()
        effective = _label_count(labels, "effective_attention_block_size")
        rows.append(
            Row(
                rank=rank,
                num_blocks=_label_count(labels, "num_gpu_blocks"),
                block_size=effective or _label_count(labels, "block_size"),
                kv_tokens=_label_count(labels, "kv_cache_size_tokens"),
                max_concurrency=_label_ratio(labels, "kv_cache_max_concurrency"),
            )
        )
    if not configs:
        notes.append(Note("the metrics hold no vllm:cache_config_info"))
    names = {each.labels.get("model_name") for group in found.values() for each in group} - {None}
    if len(names) == 1:
        settings["served_model_name"] = Setting(str(names.pop())[:400], 0, "metrics")
    return Observation(
        "vllm", source="metrics", settings=MappingProxyType(settings), rows=tuple(rows), notes=tuple(notes)
    )


def _label_count(labels: Mapping[str, str], name: str) -> Count | None:
    text = labels.get(name, "")
    return exact_count(int(text)) if text.isdecimal() and len(text) <= 20 else None


def _label_ratio(labels: Mapping[str, str], name: str) -> Ratio | None:
    value = number(labels.get(name, ""))
    return None if value is None else Ratio(value, value, value, labels[name])


_SGLANG_ROW = {
    "kv_tokens": ("sglang:max_total_num_tokens", "n"),
    "swa_tokens": ("sglang:max_total_num_tokens_swa", "n"),
    "weights_bytes": ("sglang:weight_memory_usage_gb", "GiB"),
    "kv_bytes": ("sglang:kv_cache_memory_usage_gb", "GiB"),
    "free_after_bytes": ("sglang:startup_available_gpu_memory_gb", "GiB"),
    "block_size": ("sglang:page_size", "n"),
    "num_blocks": ("sglang:num_pages", "n"),
}


def _sglang(found: Found) -> Observation:
    figures: dict[str, dict[str, Count]] = {}
    for field, (name, unit) in _SGLANG_ROW.items():
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
