"""Nemotron: dense, with squared-ReLU perceptrons.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/nemotron.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import LAYER
from kvplan.architectures.blocks.plain import BIAS, Plain
from kvplan.architectures.config.custom_types import VLLM_MODELS, wrapper_of
from kvplan.architectures.registry import lineage

lineage(
    "nemotron",
    block=Plain(
        frame=Frame(norm=LAYER), norm=LAYER, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False
    ),
)
lineage("Llama_Nemotron_Nano_VL", reads=wrapper_of(VLLM_MODELS + "nemotron_vl.py", "llm_config"))
