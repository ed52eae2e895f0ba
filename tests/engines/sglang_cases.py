"""The questions that are recorded from SGLang: every published config and every card's, some settings each.

Which GPU and settings a model is asked with follows from its name. Arguments are SGLang's own (fields of
ServerArgs); `sglang_compare` says the same to kvplan.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.architectures.config.view import split_quant
from tests.packaged import packaged_cards
from tests.recorded import record

GIB = 2**30
Turn = tuple[str, int, dict[str, Any]]
SPECULATION = {
    "speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}  # fmt: skip
TURNS: tuple[Turn, ...] = (
    ("h100", 40 * GIB + 7, {}),
    ("h100", 20 * GIB + 12_345_678, {"tp_size": 4}),
    ("h200", 60 * GIB + 1, {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}),
    ("b200", 100 * GIB + 99, {"tp_size": 4}),
    ("b200", 77 * GIB + 5, {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3", "max_running_requests": 100}),
    ("a100", 12 * GIB + 31, {"tp_size": 2, "page_size": 64}),
    ("l40s", 9 * GIB + 3, {"context_length": 2048, "mamba_full_memory_ratio": 0.5}),
    ("l4", 3 * GIB, {"page_size": 16, "kv_cache_dtype": "fp8_e5m2"}),
    ("h100", 33 * GIB + 17, {"disable_radix_cache": True, "max_running_requests": 64}),
    ("h200", 55 * GIB + 1_000_003, {"tp_size": 8, "attn_dp_size": 2}),
    ("h100", 30 * GIB + 9, {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}),
    ("h100", 26 * GIB, {"tp_size": 2, "disable_hybrid_swa_memory": True, "chunked_prefill_size": 2048}),
    ("h200", 90 * GIB + 2, {"tp_size": 8, "max_running_requests": 16, "swa_full_tokens_ratio": 0.5}),
    ("h100", 30 * GIB, {"tp_size": 4, "max_total_tokens": 50_001, "disable_overlap_schedule": True}),
    ("b200", 50 * GIB, {"tp_size": 2, "mamba_radix_cache_strategy": "extra_buffer_lazy"}),
    ("h100", 30 * GIB, {"tp_size": 8, "max_mamba_cache_size": 200, "mamba_ssm_dtype": "bfloat16"}),
    ("h100", 24 * GIB, {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True}),
    ("h200", 50 * GIB, {"tp_size": 8, **SPECULATION}),
)
"""(GPU, bytes left for the cache, arguments)."""
EACH = 3
"""Turns that a published config is asked with; a card with one."""


def _plain(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    config, quant = split_quant(raw)
    made: dict[str, Any] = json.loads(json.dumps(config, default=dict))
    return made, None if quant is None else json.loads(json.dumps(quant, default=dict))


_INSIDE = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
}


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A card's config with keys that classes insist on and that decide no size: cards keep those that do."""
    found: dict[str, Any] = json.loads(json.dumps(config))
    _complete(found)
    return found


def _complete(part: dict[str, Any]) -> None:
    kind = str(part.get("model_type"))
    if part.get("quant_method") == "fp8":
        part.setdefault("activation_scheme", "dynamic")
    if part.get("rope_type") == "proportional":
        part.setdefault("rope_theta", 1_000_000.0)
    if kind.startswith("qwen3_5") and "layer_types" in part:
        part.setdefault("full_attention_interval", 4)
    if kind.startswith("muse_glimmer") and "num_hidden_layers" in part:
        part.setdefault("hidden_activation", "silu")
    inside = part.get("llm_config")
    if isinstance(inside, dict) and inside.get("model_type") in _INSIDE:
        inside.setdefault("architectures", [_INSIDE[inside["model_type"]]])
    for value in part.values():
        if isinstance(value, dict):
            _complete(value)


WITHOUT_DRAFTS = ("card:glm-4.7-fp8", "card:glm-4.7-flash")
"""Cards that were recorded before they had their prediction layer."""


def _turns(name: str, config: Mapping[str, Any], count: int) -> Iterator[tuple[int, Turn]]:
    """So many turns from a place that the name says; speculation only with layers of the model's own."""
    first = zlib.crc32(name.encode())
    drafts = name not in WITHOUT_DRAFTS and any(
        word in json.dumps(config) for word in ("nextn", "mtp_num", "num_mtp")
    )
    usable = len(TURNS) if drafts else len(TURNS) - 1
    for step in range(count):
        place = (first + 5 * step) % usable
        yield place, TURNS[place]


def cases() -> Iterator[dict[str, Any]]:
    """Every question, as `sglang_ask` reads it; encoders left out, for which SGLang keeps a pool that nothing
    is written to."""
    for name, entry in record("configs").items():
        made = _plain(entry["config"])[0], entry.get("hf_quant_config")
        yield from _asked(name, *made, EACH)
    for card in packaged_cards():
        if card.model.config and not card.model.no_cache_reason:
            config, quant = _plain(card.model.config)
            yield from _asked(f"card:{card.slug}", completed(config), quant, 1)


def _asked(name: str, config: dict[str, Any], quant: Any, count: int) -> Iterator[dict[str, Any]]:
    for place, (gpu, memory, args) in _turns(name, config, count):
        asked = {"gpu": gpu, "args": args, "rest_memory": memory}
        yield {"name": f"{name}|{place}", "model": name, "config": config, "quant": quant, **asked}
