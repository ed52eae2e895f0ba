"""TGI's default of max_batch_prefill_tokens: huggingface/text-generation-inference 3.3 launcher/src/main.rs
(compute_optimal, vram_maximum). It reads the top of config.json alone."""

from __future__ import annotations

from kvplan.architectures.config.view import split_quant
from kvplan.engines.tgi.options import TgiOptions
from kvplan.model import Model
from kvplan.record import Json
from kvplan.settings import Serving

TERA = 10**12
FLOPS = {
    "nvidia-l4": 121, "nvidia-l40": 181, "nvidia-l40s": 363, "nvidia-a10g": 125, "nvidia-a40": 149,
    "nvidia-h100-80gb-hbm3": 900, "nvidia-h100-nvl": 900, "nvidia-h100": 900, "nvidia-a100-sxm4-80gb": 312,
    "nvidia-a100-sxm4-40gb": 312, "nvidia-a100-80gb-pcie": 312, "nvidia-a100": 312, "nvidia-h200": 989,
}  # fmt: skip
"""A card's name as nvidia-smi says it → TFLOPS that the launcher counts with; others are unknown to it."""
DEFAULT, DEFAULTS = 4096, {"qwen2_vl": 10_000, "qwen2_5_vl": 10_000, "gemma3": 8_000}
LEAST = 100
WIGGLE_ROOM = 0.95
"""TGI_WIGGLE_ROOM of the launcher; the server's own is 0.90."""


def prefill_tokens(model: Model, settings: Serving) -> int:
    """The default: by compute where the card is known to the launcher, within positions and memory."""
    raw = split_quant(model.config)[0] if model.config else {}
    found = _by_compute(raw, settings) or DEFAULTS.get(str(raw.get("model_type")), DEFAULT)
    longest = _first(raw, "max_position_embeddings", "max_seq_len", "n_positions")
    if longest is not None:
        found = min(found, longest)
    most = _by_memory(raw, settings)
    return found if most is None else min(found, most)


def _first(raw: Json, *names: str) -> int | None:
    return next((raw[name] for name in names if isinstance(raw.get(name), int)), None)


class _Sizes:
    """Sizes of the top of a config; ``whole``: all that the formulas ask for are there."""

    def __init__(self, raw: Json) -> None:
        heads, hidden = _first(raw, "num_attention_heads"), _first(raw, "hidden_size", "n_embd")
        width = _first(raw, "head_dim")
        if width is None and heads and hidden and hidden % heads == 0:
            width = hidden // heads
        kv_heads = _first(raw, "num_key_value_heads") or heads
        layers, mlp = _first(raw, "num_hidden_layers"), _first(raw, "intermediate_size")
        sizes = (heads, hidden, width, kv_heads, layers, mlp)
        self.whole = all(size is not None for size in sizes)
        self.heads, self.hidden, self.width, self.kv_heads, self.layers, self.mlp = (
            size or 0 for size in sizes
        )
        self.vocabulary = _first(raw, "vocab_size")
        self.used = (_first(raw, "num_experts_per_tok") or 1) + (_first(raw, "n_shared_experts") or 0)
        self.experts = _first(raw, "num_local_experts") or 1


def _by_compute(raw: Json, settings: Serving) -> int | None:
    """compute_optimal: what the cards do in a second over what a token costs."""
    size, gpu = _Sizes(raw), settings.gpu
    card = None if gpu is None else FLOPS.get(gpu.name.replace(" ", "-").lower())
    if card is None or raw.get("vision_config") is not None or not size.whole:
        return None
    attention = 2 * (2 * size.heads + 2 * size.kv_heads) * size.width * size.hidden
    layer = attention + 2 * 3 * size.hidden * size.mlp * size.used
    found = card * TERA * settings.tensor_parallel_size // (layer * size.layers)
    return found if found > LEAST else None


def _by_memory(raw: Json, settings: Serving) -> int | None:
    """vram_maximum: what is left beside float16 weights, by the launcher's own rough count."""
    size, gpu = _Sizes(raw), settings.gpu
    total = None if gpu is None else gpu.memory_nvml_bytes
    if total is None or not size.whole or size.vocabulary is None or "quantization_config" in raw:
        return None
    share = float(TgiOptions.of(settings).cuda_memory_fraction)
    available = int(total * settings.tensor_parallel_size * share * WIGGLE_ROOM)
    attention = (size.heads + 2 * size.kv_heads) * size.width + size.heads * size.width * size.hidden
    layer = attention + 3 * size.mlp * size.experts * size.hidden
    weights = 2 * (layer * size.layers + 2 * size.hidden * size.vocabulary)
    token = size.kv_heads * 2 * size.width * 2 * size.layers
    token += (size.mlp + size.mlp // 2) * size.experts * 2 * 3
    return (available - weights) // token if available >= weights else None
