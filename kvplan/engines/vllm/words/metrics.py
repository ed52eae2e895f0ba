"""vLLM's metrics page and the pages beside it: the pool, the load, the model.

Source: vllm-project/vllm 0.32.0 v1/metrics/loggers.py and config/cache.py.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kvplan.engines.observed import Count, Note, Observation, Rank, Ratio, Row, Setting, exact_count
from kvplan.engines.observed.page import MAX_ENGINES, Found, Live, most, number, sum_of
from kvplan.engines.observed.settings import from_text
from kvplan.engines.vllm.words.log import SETTINGS

LIVE: Live = {
    "usage": (most, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
    "running": (sum_of, ("vllm:num_requests_running",)),
    "waiting": (sum_of, ("vllm:num_requests_waiting",)),
    "preemptions": (sum_of, ("vllm:num_preemptions",)),
    "queries": (sum_of, ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")),
    "hits": (sum_of, ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")),
}
BESIDE = ("/v1/models", "/version")
"""Pages that tell what the metrics do not: the model, its longest request, the release."""
_OK, _UNAUTHORIZED = 200, (401, 403)


def observation(found: Found) -> Observation:
    """The pool, as ``cache_config_info`` has it."""
    rows: list[Row] = []
    settings: dict[str, Setting] = {}
    notes: list[Note] = []
    configs = found.get("vllm:cache_config_info", [])
    for each in configs[:MAX_ENGINES]:
        labels = each.labels
        for key, known in SETTINGS.items():
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


def with_beside(found: Observation, pages: Mapping[str, tuple[int, bytes]]) -> Observation:
    """The observation with what the pages ``BESIDE`` add; pages: their status and body."""
    settings, notes = dict(found.settings), list(found.notes)
    status, body = pages["/v1/models"]
    if status in _UNAUTHORIZED:
        notes.append(Note("the list of models wants an API key, so the model and its length are not known"))
    for entry in _entries(body) if status == _OK else ():
        length, name = entry.get("max_model_len"), entry.get("root")
        if isinstance(length, int) and not isinstance(length, bool):
            settings["max_model_len"] = Setting(length, 0, "model list")
            if isinstance(name, str):
                settings["model"] = Setting(name[:400], 0, "model list")
            break
    status, body = pages["/version"]
    version = _object(body).get("version") if status == _OK else None
    length = settings["max_model_len"].value if "max_model_len" in settings else None
    tokens = exact_count(length) if isinstance(length, int) else None
    return dataclasses.replace(
        found,
        engine_version=version[:60] if isinstance(version, str) else None,
        settings=MappingProxyType(settings),
        notes=tuple(notes),
        rows=tuple(dataclasses.replace(row, max_concurrency_tokens=tokens) for row in found.rows),
    )


def _entries(body: bytes) -> list[dict[str, Any]]:
    data = _object(body).get("data")
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
