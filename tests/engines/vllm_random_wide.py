"""Settings drawn by chance in wider corners than `vllm_random_cases`: what few users set, alone and together.

Odd blocks, every format of cache, weights and states, stages that leave a layer or none, ranks beyond the KV
heads, every backend by name, drafts of every kind beside every target, GPUs of 7.0 to 12.1 and AMD's.
"""

from __future__ import annotations

import random
from typing import Any

from tests.engines.vllm_cases import Config, Options
from tests.engines.vllm_random_cases import DEPTHS, Entry, config_named, draft_beside, pool
from tests.engines.vllm_stage import CARDS

MEMORY = (24, 24, 24, 5, 1, 70, 160)
CHANCES: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (2, 4, 8, 16, 32, 3, 6),
    "pipeline_parallel_size": (2, 3, 4, 5, 6, 7, 8),
    "kv_cache_dtype": (
        "fp8", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16", "int8_per_token_head", "nvfp4_4over6",
        "fp8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_k8v4", "turboquant_4bit_nc",
        "turboquant_k3v4_nc", "turboquant_3bit_nc", "fp8_ds_mla", "nvfp4_ds_mla",
    ),
    "block_size": (
        1, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 208, 256, 272, 400, 512, 528, 544, 784,
        1024, 1056, 2048, 4096,
    ),
    "max_model_len": (1, 15, 257, 777, 1000, 2048, 3333, 4096, 8191, 8192, 16000, 32768, 100_000, -1, -1),
    "max_num_seqs": (1, 2, 7, 16, 33, 64, 300, 1024, 2000, 5000),
    "max_num_batched_tokens": (16, 100, 1000, 2048, 5000, 8193, 16384, 40000, 100_000),
    "enable_prefix_caching": (True, False),
    "disable_hybrid_kv_cache_manager": (True,),
    "usage": ("llm",),
    "dtype": ("float16", "float32", "bfloat16"),
    "mamba_ssm_cache_dtype": ("float32", "float16", "bfloat16"),
    "mamba_cache_dtype": ("float32", "float16", "bfloat16"),
    "enable_expert_parallel": (True,),
    "decode_context_parallel_size": (2, 4, 8, 16),
    "prefill_context_parallel_size": (2, 4),
    "async_scheduling": (True, False),
    "num_gpu_blocks_override": (1, 40, 700, 5000, 1_000_000),
    "language_model_only": (True,),
    "attention_backend": (
        "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASHMLA", "TRITON_MLA", "CUTLASS_MLA",
        "FLASHINFER_MLA", "FLASH_ATTN_MLA", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE", "ROCM_ATTN",
        "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "ROCM_AITER_MLA", "TURBOQUANT", "TREE_ATTN",
        "FLASH_ATTN_DIFFKV", "TOKENSPEED_MLA", "FLASHINFER_MLA_SPARSE_SM120", "FLASH_ATTN_MLA_SPARSE",
    ),
    "quantization": ("fp8", "bitsandbytes"),
}  # fmt: skip
"""What may be changed, and to what."""
OFTEN = ("pipeline_parallel_size", "kv_cache_dtype", "block_size", "max_model_len")
SELDOM = (
    "prefill_context_parallel_size", "quantization", "num_gpu_blocks_override", "language_model_only",
    "usage", "mamba_cache_dtype",
)  # fmt: skip
_SCALED = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
_GROUP = {
    "targets": ["Linear"],
    "weights": _SCALED,
    "input_activations": {**_SCALED, "strategy": "token", "dynamic": True},
}
FORMATS: dict[str, Config] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8-blocks": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "fmt": "e4m3",
    },
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": _GROUP},
        "ignore": ["lm_head"],
        "kv_cache_scheme": _SCALED,
    },
    "compressed-tensors-plain": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": _GROUP},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    },
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
    "modelopt-fp8": {
        "quant_method": "modelopt",
        "quant_algo": "FP8",
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "producer": {"name": "modelopt", "version": "0.29.0"},
        "ignore": ["lm_head"],
    },
    "modelopt-nvfp4": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "producer": {"name": "modelopt", "version": "0.29.0"},
        "group_size": 16,
        "config_groups": {
            "group_0": {
                "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
                "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False},
                "targets": ["Linear"],
            }
        },
        "ignore": ["lm_head"],
    },
    "bitsandbytes": {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16",
    },
}
"""How a checkpoint says that it is quantised."""


def _drafts(draw: random.Random, config: Config, *, own: bool) -> tuple[Options, str]:
    """How drafts are proposed, and which of `vllm_random_cases.draft_beside` stands beside the model."""
    chance, count = draw.random(), draw.choice((1, 2, 3, 4, 5, 7))
    if own and chance < 0.6:
        return {"speculative_method": "mtp", "num_speculative_tokens": count}, ""
    if chance < 0.12:
        method = draw.choice(("ngram", "ngram_gpu", "suffix"))
        return {"speculative_method": method, "num_speculative_tokens": count}, ""
    pattern = str(config.get("hybrid_override_pattern") or "*")
    if "*" not in pattern:  # a cut that left no attention of its own beside the draft's
        return {}, ""
    method = draw.choice(("draft_model", "draft_model", "eagle", "eagle3"))
    if chance < 0.27 and draft_beside(method, config):
        return {"speculative_method": method, "num_speculative_tokens": count}, f"beside:{method}"
    return {}, ""


def draw_wide(draw: random.Random, gpus: tuple[str, ...]) -> Entry:
    """One draw as it is recorded."""
    where = draw.choice(("small", "small", "card", "card", "card", "published", "published", "predicting"))
    name, depth = draw.choice(pool()[where]), draw.choice((*DEPTHS, 7, 11))
    options: Options = {}
    for key, choices in CHANCES.items():
        chance = 0.22 if key in OFTEN else 0.02 if key in SELDOM else 0.1
        if draw.random() < chance:
            options[key] = draw.choice(choices)
    if "decode_context_parallel_size" in options:
        options["tensor_parallel_size"] = draw.choice((4, 8, 16, 32))
    form = draw.choice(tuple(FORMATS)) if draw.random() < 0.12 else ""
    if form:
        options.pop("quantization", None)
    config = config_named(where, name, depth)
    if "*" not in str(config.get("hybrid_override_pattern") or "*"):
        depth = 24  # so many have attention too
        config = config_named(where, name, depth)
    if "expert" not in str(config):  # others are refused at once
        options.pop("enable_expert_parallel", None)
    if config.get("model_type") == "gemma4":  # its processor, which is not there, would raise the batch
        options.setdefault("max_num_batched_tokens", 5000)
    own = where == "predicting" or any("nextn" in key or "mtp" in key for key in config)
    drafts, draft = _drafts(draw, config, own=own)
    entry = {
        "config": ":".join(filter(None, (where, name, str(depth), form))),
        "gpu": draw.choice(gpus),
        "memory": draw.choice(MEMORY),
        "options": options | drafts,
    }
    return {**entry, "draft": draft} if draft else entry


def wide_draws(release: str, seed: int, count: int) -> list[Entry]:
    """So many draws of a seed, grouped by GPU: four GPUs a seed, since each starts a process."""
    draw = random.Random(f"wide {release} {seed}")
    gpus = (*draw.sample(sorted(CARDS), 3), "h100")
    made = {str(entry): entry for entry in (draw_wide(draw, gpus) for _ in range(count))}
    return sorted(made.values(), key=lambda entry: (entry["gpu"], str(entry)))
