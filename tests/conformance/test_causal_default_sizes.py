"""``{"model_type": X}`` alone against the library's own full-size default, on the meta device."""

from __future__ import annotations

import os
import zlib
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers 5.24")

from tests.conformance import harness

if not harness.HAVE_RELEASE:
    pytest.skip(f"needs transformers {harness.RELEASE}", allow_module_level=True)

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import kvplan
from tests.conformance.causal_cases import CAUSAL, DECODER_OF, FULL, LINEAR, NO_FORMULA, UNMEASURABLE, set_of

pytestmark = pytest.mark.conformance

# What a class needs before its default can be built; kvplan gets the same keys.
NEEDED: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18]},
    "cohere_compass_text": {
        "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e4}, "rope_type": "default"}
    },
    "dbrx": {"attn_config": {"kv_n_heads": 8, "rope_theta": 5e5, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": [LINEAR, LINEAR, FULL, LINEAR]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", FULL, "conv"]},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "xmod": {"default_language": "en_XX"},
}
# Python loops over the sequence: only short prompts are quick.
SLOW = set_of(
    """
    mamba falcon_mamba jamba zamba bamba mamba2 zamba2 falcon_h1 granitemoehybrid nemotron_h
    kimi_linear bailing_hybrid olmo_hybrid minimax qwen3_5 qwen3_5_moe qwen3_5_text
    qwen3_5_moe_text qwen3_next rwkv xlstm
    """
)
# A forward on the meta device reads values (or the default cannot be built at all).
NO_META = set_of(
    """
    bart big_bird biogpt blenderbot blenderbot-small dbrx gemma4 gemma4_unified jetmoe
    longcat_flash marian mbart megatron-bert moshi pegasus plbart qwen4_exp qwen4_exp_text
    recurrent_gemma rembert roformer xlnet xmod
    """
)
TWO_DEFAULTS = {"dory": "a file without its counts is read as vLLM's class reads it: blocks that run once"}
KNOWN_MEASURABLE = 160
WHOLE = os.environ.get("KVPLAN_CONFORMANCE") == "all"
TYPES = [
    name
    for name in CAUSAL
    if not {name}
    & (NO_META | TWO_DEFAULTS.keys() | UNMEASURABLE.keys() | NO_FORMULA.keys() | DECODER_OF.keys())
]
SAMPLE = TYPES if WHOLE else [name for name in TYPES if zlib.crc32(name.encode()) % 16 == 0]


def lengths(model_type: str, config: Any) -> tuple[int, int]:
    longest = next(
        (
            getattr(config, key)
            for key in ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len")
            if isinstance(getattr(config, key, None), int)
        ),
        1 << 20,
    )
    if model_type in SLOW:
        return 40, 150
    return min(200, longest // 4), min(9000, longest - 8)


def forward(model: Any, ids: torch.Tensor) -> Any:
    """Mixtures of experts need another implementation on the meta device."""
    with torch.no_grad():
        try:
            return model(input_ids=ids, use_cache=True, return_dict=True)
        except Exception:
            model.set_experts_implementation("batched_mm")
            return model(input_ids=ids, use_cache=True, return_dict=True)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_class_defaults(model_type: str) -> None:
    needed = NEEDED.get(model_type, {})
    config = CONFIG_MAPPING[model_type](**needed)
    text = config.get_text_config(decoder=True)
    for part in (config, text):
        if hasattr(part, "is_decoder"):
            part.is_decoder = True
    model = harness.build(CAUSAL[model_type], config, "bfloat16", "meta")
    asked = {"model_type": model_type, "architectures": [CAUSAL[model_type]], **needed}
    with harness.time_limit(120):
        for tokens in lengths(model_type, text):
            ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
            _, cache = harness.cache_of(forward(model, ids))
            held = harness.data_bytes([*harness.reachable(cache), *harness.hidden_state(model)])
            result = kvplan.size(asked, engine=harness.ENGINE, tokens=tokens, dtype="bfloat16")
            assert result.per_gpu.kv_bytes == held, f"{model_type} at {tokens} tokens"


def test_no_default_was_left_out() -> None:
    assert len(TYPES) >= KNOWN_MEASURABLE
