"""Qwen 2, 2.5 and 3, dense and with experts.

Sources: huggingface/transformers 5.23.0 models/qwen*/configuration_*.py; vllm-project/vllm 0.32
vllm/model_executor/models/ qwen2.py, qwen3.py, qwen2_moe.py, qwen3_moe.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads, with_window
from kvplan.architectures.blocks.moe import STEP_MOE
from kvplan.architectures.blocks.plain import EVERYWHERE, Plain
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe
from kvplan.architectures.config.custom_types import own_keys
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.families import SlidingWindow


def gated_window(view: ConfigView) -> int | None:
    """sliding_window, which counts only with use_sliding_window (Qwen)."""
    return view.optional_integer("sliding_window") if view.flag("use_sliding_window") else None


def _gated_sliding(view: ConfigView) -> Parts:
    size = gated_window(view)
    if size is None:
        raise view.refuse(
            "use_sliding_window", "is off or has no sliding_window, but layer_types has windowed layers"
        )
    return (SlidingWindow(num_kv_heads(view), head_dim(view), size),)


def _from_max_window_layers(view: ConfigView, count: int) -> list[str]:
    size = gated_window(view)
    return _windowed_from(view, count, size)


def _windowed_from(view: ConfigView, count: int, size: int | None) -> list[str]:
    first = view.optional_integer("max_window_layers", default=0, lowest=0) or 0
    return [SLIDING if size is not None and index >= first else FULL for index in range(count)]


def _qwen2_moe(view: ConfigView, count: int) -> list[str]:
    first_full = view.optional_integer("max_window_layers", default=0, lowest=0) or 0
    on = view.flag("use_sliding_window")
    return [SLIDING if on and index % 2 == 0 and index < first_full else FULL for index in range(count)]


def _qwen3_moe(view: ConfigView, count: int) -> list[str]:
    return [FULL if gated_window(view) is None else SLIDING] * count


def windowed_from_key(view: ConfigView, count: int) -> list[str]:
    return _windowed_from(view, count, view.optional_integer("sliding_window"))


QWEN2_ROW = Plain(qkv_bias=True, qk_norm="head", qk_norm_if="qk_norm")

QWEN3_ROW = Plain(qkv_bias="attention_bias", qk_norm="head")

QWEN3_MOE_ROW = Plain(frame=EVERYWHERE, qkv_bias="attention_bias", qk_norm="head", moe=STEP_MOE)


lineage(
    "qwen2",
    "qwen2_5_vl_text",
    "qwen2_vl_text",
    layers=Recipe(with_window(_gated_sliding), _from_max_window_layers),
    block=QWEN2_ROW,
)
lineage(
    "qwen2_5_omni_talker",
    "qwen2_5_omni_text",
    layers=Recipe(with_window(_gated_sliding), _from_max_window_layers),
)
lineage(
    "qwen2_moe",
    layers=Recipe(with_window(_gated_sliding), _qwen2_moe),
    block=Plain(frame=EVERYWHERE, qkv_bias="qkv_bias", moe=STEP_MOE),
)
lineage("qwen3", layers=Recipe(with_window(_gated_sliding), _from_max_window_layers), block=QWEN3_ROW)
# Windows on all layers or on none; max_window_layers is not read.
lineage("qwen3_moe", layers=Recipe(with_window(_gated_sliding), _qwen3_moe), block=QWEN3_MOE_ROW)
lineage("qwen3_omni_moe_talker_code_predictor", layers=Recipe(ATTENTION, windowed_from_key))
lineage("qwen3_vl_moe_text", block=QWEN3_MOE_ROW)
lineage("qwen3_vl_text", block=QWEN3_ROW)
lineage("qwen", reads=own_keys("Qwen/Qwen-7B modeling_qwen.py", {"kv_channels": "head_dim"}))
