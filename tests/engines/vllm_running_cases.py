"""Settings whose max_running is held against vLLM's own scheduler: cards, their groups and their pools.

A question is what the scheduler is asked: the pool's usable blocks, the groups, the scheduler's settings,
prompt and answer of each request and how many of them arrive at once. Its groups and blocks come from
kvplan's plan, which other tests hold against vLLM's planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kvplan
from kvplan.api import make_settings
from kvplan.engines.vllm import compiled
from kvplan.engines.vllm.holding import CHUNK, FULL, STATE, WINDOW
from kvplan.engines.vllm.running import tables_of

VERSION = "0.32"
Options = dict[str, Any]
Question = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One card under one set of options; ``name`` is the key in the recorded file."""

    name: str
    card: str
    options: Options


_KINDS = {FULL: "full", WINDOW: "window", CHUNK: "chunk", STATE: "state"}


def answer_of(setting: Setting) -> kvplan.SizeResult:
    return kvplan.size(setting.card, engine=f"vllm@{VERSION}", **setting.options)


def question_of(setting: Setting, result: kvplan.SizeResult) -> Question:
    """What the scheduler is asked, without the number of requests."""
    model, settings = kvplan.load_model(setting.card), make_settings(**setting.options)
    plan = compiled(model, VERSION, settings).plan
    assert plan is not None
    assert result.pool is not None
    groups: list[dict[str, Any]] = []
    for table in tables_of(plan, 0):
        group: dict[str, Any] = {"kind": _KINDS.get(table.rule, "state"), "block_size": table.block}
        if table.rule == WINDOW:
            group["window"] = table.span + 1
        elif table.rule == CHUNK:
            group["window"] = table.span
        if table.checkpoint:
            group["checkpoint"] = 16
        groups += [group] * table.groups
    request = result.request
    shown = result.settings
    aligned = any(table.rule == STATE for table in tables_of(plan, 0))
    return {
        "groups": groups,
        "usable_blocks": result.pool.num_blocks - 1,
        "block_size": groups[0]["block_size"] if len(groups) == 1 else shown["block_size"],
        "max_num_batched_tokens": shown["max_num_batched_tokens"],
        "max_num_seqs": shown["max_num_seqs"],
        "max_model_len": shown["max_model_len"],
        "enable_prefix_caching": shown["enable_prefix_caching"],
        "async_scheduling": shown["async_scheduling"],
        "mamba_cache_mode": "align" if aligned else "none",
        "prompt": request.tokens - request.answer_tokens,
        "answer": request.answer_tokens,
    }


def beyond(running: int) -> int:
    """The burst that must be too large: one request more, or two in a hundred."""
    return max(running + 1, -(-running * 102 // 100))


_MODELS: tuple[tuple[str, str, Options], ...] = (
    ("full", "llama-3.1-8b", {"kv_cache_memory": "8GiB", "max_model_len": 32768}),
    ("full-small", "qwen3-0.6b", {"kv_cache_memory": "6GiB", "max_model_len": 16384}),
    ("latent", "deepseek-v2-lite", {"kv_cache_memory": "4GiB", "max_model_len": 32768}),
    ("windows", "gemma-3-27b", {"kv_cache_memory": "24GiB", "max_model_len": 32768}),
    ("windows-small", "gemma-3-4b", {"kv_cache_memory": "6GiB", "max_model_len": 32768}),
    ("windows-sinks", "gpt-oss-20b", {"kv_cache_memory": "12GiB", "max_model_len": 32768}),
    ("windows-olmo", "olmo-3-7b", {"kv_cache_memory": "24GiB", "max_model_len": 32768}),
    ("windows-alone", "mistral-7b-v0.1", {"kv_cache_memory": "12GiB", "max_model_len": 32768}),
    ("windows-mimo", "mimo-v2-flash", {"kv_cache_memory": "8GiB", "max_model_len": 32768, "tp": 8}),
    ("chunks", "llama-4-scout", {"kv_cache_memory": "12GiB", "max_model_len": 32768, "tp": 8}),
    ("compressed", "deepseek-v4-flash", {"kv_cache_memory": "14GiB", "max_model_len": 65536, "tp": 4}),
    ("states-deltas", "qwen3-next-80b-a3b", {"kv_cache_memory": "8GiB", "max_model_len": 32768, "tp": 2}),
    ("states-mamba2", "nemotron-h-8b", {"kv_cache_memory": "8GiB", "max_model_len": 8192}),
    ("states-only", "falcon-mamba-7b", {"kv_cache_memory": "4GiB", "max_model_len": 32768}),
    ("states-jamba", "jamba-1.5-mini", {"kv_cache_memory": "8GiB", "max_model_len": 32768}),
)
_LOADS: tuple[tuple[str, Options], ...] = (
    ("8k", {"tokens": 8192}),
    ("8k-batch-2k", {"tokens": 8191, "answer_tokens": 1023, "max_num_batched_tokens": 2048}),
    ("4k-long-answers", {"tokens": 4096, "answer_tokens": 2048}),
    ("7k-sync", {"tokens": 7000, "async_scheduling": False}),
    ("2k-batch-16k", {"tokens": 2500, "max_num_batched_tokens": 16384}),
)
_LONG: tuple[tuple[str, Options], ...] = (
    ("32k", {"tokens": 32768}),
    ("32k-batch-2k", {"tokens": 32768, "answer_tokens": 512, "max_num_batched_tokens": 2048}),
    ("20k-no-prefixes", {"tokens": 20000, "answer_tokens": 5000, "enable_prefix_caching": False}),
    ("8k-few", {"tokens": 8192, "max_num_seqs": 8}),
)
_ON_GPUS: tuple[tuple[str, Options], ...] = (
    ("gemma-3-27b", {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023, "max_model_len": 8192}),
    ("gpt-oss-20b", {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023}),
    ("gpt-oss-120b", {"gpu": "h100x2", "tokens": 8191, "answer_tokens": 1023, "max_num_seqs": 256}),
    ("llama-3.1-8b", {"gpu": "h100", "tokens": 8191, "answer_tokens": 1023}),
)
_LONG_ONES = ("full", "windows", "windows-small", "windows-sinks", "chunks", "compressed", "states-deltas")


def settings() -> list[Setting]:
    """All settings, in a fixed order."""
    found = [
        Setting(f"{name}-{load}", card, {**options, **more})
        for name, card, options in _MODELS
        for load, more in _LOADS
    ]
    found += [
        Setting(f"{name}-{load}", card, {**options, **more})
        for name, card, options in _MODELS
        if name in _LONG_ONES
        for load, more in _LONG
    ]
    return [*found, *(Setting(f"gpu-{card}", card, options) for card, options in _ON_GPUS)]
