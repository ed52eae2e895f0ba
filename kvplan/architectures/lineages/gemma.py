"""Gemma 1 to 3, VaultGemma and PaliGemma.

Sources: huggingface/transformers 5.23.0 models/{gemma,gemma2,gemma3,vaultgemma}; vllm-project/vllm 0.32
vllm/model_executor/models/ gemma.py, gemma2.py, gemma3.py, gemma3_mm.py, paligemma.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads, window, with_window
from kvplan.architectures.blocks.parts import linear, norm, vector, whole
from kvplan.architectures.blocks.plain import BIAS, EVERYWHERE, FOUR_NORMS, Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe, every, every_key
from kvplan.architectures.blocks.tower import (
    VISION,
    Raw,
    placed,
    siglip,
    siglip_with_head,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import lineage
from kvplan.families import SlidingWindow
from kvplan.weights.inventory import Placed


def halved_window(view: ConfigView) -> int:
    """sliding_window // 2 + 1 where attention looks both ways (gemma3, gemma4)."""
    size = window(view)
    if view.get("use_bidirectional_attention") in (True, "all"):
        return derived(size // 2 + 1, "sliding_window // 2 + 1 (use_bidirectional_attention)")
    return size


def halved_sliding(view: ConfigView) -> Parts:
    return (SlidingWindow(num_kv_heads(view), head_dim(view), halved_window(view)),)


def _gemma3(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP, a norm and one projection."""
    vision = vision_view(raw)
    width = whole("vision hidden_size", int(vision.integer("hidden_size")))
    made = siglip(vision, tower_layers(vision))
    made += vector(
        "multi_modal_projector.mm_input_projection_weight", width, whole("hidden_size", hidden_size(view))
    )
    return placed(made + norm("multi_modal_projector.mm_soft_emb_norm", width))


def _paligemma(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP and one projection."""
    vision = vision_view(raw)
    out = whole("projection_dim", int(vision.optional_integer("projection_dim") or hidden_size(view)))
    into = whole(VISION, int(vision.integer("hidden_size")))
    return placed(siglip_with_head(vision) + linear("multi_modal_projector.linear", out, into, bias=True))


lineage("gemma", block=Plain(frame=EVERYWHERE))
lineage(
    "gemma2",
    layers=Recipe(ATTENTION, every(2, SLIDING, FULL)),
    block=Plain(frame=EVERYWHERE, norms=FOUR_NORMS, qkv_bias="attention_bias", o_bias="attention_bias"),
)
lineage(
    "gemma3",
    tower=_gemma3,
    media=Rule("fixed", tokens=("mm_tokens_per_image", 256), needs_size=False, source="no pan and scan"),
)
lineage(
    "gemma3_text",
    layers=Recipe(with_window(halved_sliding), every_key("sliding_window_pattern", 6, SLIDING, FULL)),
    block=Plain(
        frame=EVERYWHERE, norms=FOUR_NORMS, qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head"
    ),
)
lineage(
    "vaultgemma",
    layers=Recipe(ATTENTION, every(2, SLIDING, FULL)),
    block=Plain(norms=("input_layernorm", "pre_feedforward_layernorm"), qkv_bias=BIAS, o_bias=BIAS),
)
lineage(
    "paligemma",
    tower=_paligemma,
    media=Rule(
        "one_tile_plain",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 224),
        needs_size=False,
        source="image_seq_length: every patch",
    ),
)
