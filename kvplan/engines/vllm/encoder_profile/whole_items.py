"""Images and videos that vLLM schedules whole: one must fit into a batch.

Where image tokens see each other, prompts are not cut inside an item (vllm-project/vllm
vllm/platforms/cuda.py, check_and_update_config: "Forcing --disable_chunked_mm_input"; platforms/rocm.py since
0.31). A start whose max_num_batched_tokens is less than the largest item that is served stops
(vllm/v1/core/encoder_cache_manager.py, compute_mm_encoder_budget).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.encoder_profile.multimodal import has_encoder, limits_of
from kvplan.engines.vllm.versions import Rules
from kvplan.model import Model
from kvplan.record import Json
from kvplan.settings import Layout

_FRAMES, _OF_A_FRAME = 32, 70 + 2 + 6
"""Frames of a video, and their tokens: soft ones, two that mark a frame and a timestamp (gemma4_mm.py)."""
_IMAGE = 280


def floor_of(model: Model, settings: Layout, rules: Rules) -> int:
    """Tokens to which the default of a batch is raised since 0.22, whether such an item is served or not
    (vllm/engine/arg_utils.py, _get_min_mm_batched_tokens); 0 for models that cut their items. In 0.20 and
    0.21 the default of GPUs below 70 GiB, 2,048, is too few for Gemma 4's videos
    (vllm-project/vllm#42687)."""
    items = items_of(model, settings, rules) if rules.items_raise_batch else {}
    return max(items.values(), default=0)


def items_of(model: Model, settings: Layout, rules: Rules) -> Mapping[str, int]:
    """Modality → tokens of its largest item, sound aside (gemma4_mm.py, get_mm_max_tokens_per_item)."""
    # Gemma 4 since 0.20: vllm/transformers_utils/model_arch_config_convertor.py,
    # Gemma4ModelArchConfigConvertor.
    if not class_of(model.architecture).whole_items or not has_encoder(model):
        return {}
    config: Json = model.config or {}
    vision = config.get("vision_config")
    image = _number(config.get("vision_soft_tokens_per_image"))
    if image is None and isinstance(vision, Mapping):
        image = _number(vision.get("default_output_length"))
    frames = _FRAMES
    if rules.gemma4_options:
        asked = limits_of(settings).get("video")
        own = _number(asked.get("num_frames")) if isinstance(asked, Mapping) else None
        frames = min(frames, own or frames)
    return {"image": image or _IMAGE, "video": frames * _OF_A_FRAME}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
