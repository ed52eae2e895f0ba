"""Pangu Ultra MoE: DeepSeek-V3's layers under another name (`config.custom_types`)."""

from __future__ import annotations

from kvplan.architectures.config.custom_types import VLLM_MODELS, copy_of, own_keys_grouped
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import lineage

lineage(
    "pangu_ultra_moe",
    reads=copy_of("deepseek_v3", VLLM_MODELS + "openpangu.py (OpenPanguMLAAttention)", inherits=False),
    prediction=Prediction(),
)
lineage("PanguEmbedded", reads=own_keys_grouped(VLLM_MODELS + "openpangu.py (PanguEmbeddedForCausalLM)"))
