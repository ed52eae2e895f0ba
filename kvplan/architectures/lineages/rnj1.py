"""Rnj-1: Gemma 3's layers, full or in chunks that look one chunk back.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/rnj1.py. The files name Gemma 3's model type; the
class tells them apart.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, sliding
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.plain import BIAS, FOUR_NORMS, Plain
from kvplan.architectures.blocks.recipe import CHUNKED, FULL, Recipe
from kvplan.architectures.config.custom_types import VLLM_MODELS, CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage


def _kinds(view: ConfigView, count: int) -> list[str]:
    raise view.missing("layer_types")


lineage(
    "rnj1",
    reads=CustomType(VLLM_MODELS + "rnj1.py (0.33)", defaults={"head_dim": 256, "tie_word_embeddings": True}),
    # A chunked layer's cache is that of a window of sliding_window tokens.
    layers=Recipe({FULL: ATTENTION[FULL], CHUNKED: sliding}, _kinds),
    tensors=Plain(frame=Frame(everywhere=True), norms=FOUR_NORMS, qkv_bias=BIAS, o_bias=BIAS, qk_norm="head"),
)
