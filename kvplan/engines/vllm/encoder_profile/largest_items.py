"""The items with which vLLM profiles an encoder: the largest image or video that the model's processor takes.

Each rule mirrors the class's ``ProcessingInfo`` and ``DummyInputsBuilder`` (vllm-project/vllm
vllm/model_executor/models/, read in 0.8.5 … 0.33; the release in which a rule changed stands beside it).
Limits of pixels are those of the published preprocessor_config.json (`kvplan.architectures.media.rule`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt

from kvplan.architectures.lineages import lineage_of
from kvplan.architectures.media.rule import Pixels, Rule
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.encoder_profile.dummy_audio import AUDIO
from kvplan.engines.vllm.encoder_profile.dummy_crops import CROPS
from kvplan.engines.vllm.encoder_profile.dummy_images import IMAGES
from kvplan.engines.vllm.encoder_profile.dummy_items import Asked, Item, largest_square, squarest
from kvplan.record import Json
from kvplan.units import ceil_div


def _image_tokens(asked: Asked, most: int, unit: int) -> int:
    """Before 0.13 a huge square was resized to the limit."""
    if not asked.rules.squarest_images:
        return max(1, isqrt(most) // unit) ** 2
    return max(1, squarest(max(1, most // (unit * unit))))


def _qwen2(asked: Asked) -> dict[str, Item]:
    merge = asked.number("spatial_merge_size", 2)
    unit = asked.number("patch_size", 14) * merge
    image = _image_tokens(asked, asked.most_pixels(asked.rule.pixels, "images_kwargs"), unit)
    most = asked.rules.video_frames

    def pairs(length: int) -> int:
        """Pairs of frames that a sequence holds, each as large as the largest image."""
        frames = max(1, min(2 * (length // image), most, asked.frames or most))
        return ceil_div(frames, 2)

    return {
        "image": Item(image, image * merge * merge),
        "video": Item(image * pairs(asked.length), image * pairs(asked.longest) * merge * merge),
    }


def _qwen3(asked: Asked) -> dict[str, Item]:
    merge = asked.number("spatial_merge_size", 2)
    unit = asked.number("patch_size", 16) * merge
    image = _image_tokens(asked, asked.most_pixels(asked.rule.pixels, "images_kwargs"), unit)
    pair = asked.number("temporal_patch_size", 2)
    most = asked.most_pixels(asked.rule.video_pixels, "videos_kwargs") // pair
    video = _image_tokens(asked, most, unit)
    counted = video * 25 // 2 if asked.rules.qwen3_video_padded else video
    return {
        "image": Item(image, image * merge * merge),
        "video": Item(counted, video * merge * merge),
    }


def _image_alone(asked: Asked) -> dict[str, Item]:
    return {"image": _qwen2(asked)["image"]}


_GLM_VIDEO = 28 * 28 * 2 * 30000
"""Glm4vProcessingInfo._get_vision_info: pixels of all frames; images counted as 16 frames before 0.17."""


def _glm4v(asked: Asked) -> dict[str, Item]:
    merge = asked.number("spatial_merge_size", 2)
    unit = asked.number("patch_size", 14) * merge
    most = asked.most_pixels(asked.rule.pixels, "images_kwargs") // 2
    if asked.rules.glm_frames_of_16:
        most = min(most, _GLM_VIDEO // 16)
    image = largest_square(most, unit)
    counted, run = (max(1, min(_GLM_VIDEO // 2 // (unit * unit), room)) for room in asked.room(image))
    return {
        "image": Item(image, image * merge * merge),
        "video": Item(counted, run * merge * merge),
    }


def _gemma3(asked: Asked) -> dict[str, Item]:
    tokens = asked.config.get("mm_tokens_per_image")
    side = asked.number("image_size", 896) // asked.number("patch_size", 14)
    return {"image": Item(tokens if isinstance(tokens, int) and tokens > 0 else 256, side * side)}


_GEMMA4_FRAMES, _GEMMA4_TOKENS = 32, 70


_ONE_HOT, _MOST_SHARE = 4 * 8, 10


def _chunk(asked: Asked, patches: int) -> int:
    """Images or frames of one run: Gemma 4's positions may take a tenth of the GPU (gemma4_mm.py,
    _encoder_chunk; the half of what is free is more at start-up)."""
    cost = patches * asked.number("position_embedding_size", 10_240) * _ONE_HOT
    return max(1, asked.memory // _MOST_SHARE // cost)


def _gemma4(asked: Asked) -> dict[str, Item]:
    """Frames of 70 soft tokens, a timestamp beside each; before 0.22 one frame ran at a time, since then as
    many as `_chunk` says."""
    pool = asked.number("pooling_kernel_size", 3) ** 2
    soft = asked.config.get("vision_soft_tokens_per_image")
    image = soft if isinstance(soft, int) and soft > 0 else asked.number("default_output_length", 280)
    frames = _GEMMA4_FRAMES
    if asked.rules.gemma4_options:
        own = asked.processor.get("max_soft_tokens")
        image = own if own in (70, 140, 280, 560, 1120) else image
        frames = min(frames, asked.frames or frames)
    counted, frame = frames * (_GEMMA4_TOKENS + 8), _GEMMA4_TOKENS * pool
    if not asked.rules.gemma4_chunks:
        return {"image": Item(image, image * pool), "video": Item(counted, frame)}
    images, parts = (_chunk(asked, size) * size if asked.memory else 0 for size in (image * pool, frame))
    return {
        "image": Item(image, image * pool, at_once=images, whole=True),
        "video": Item(counted, frames * frame, at_once=parts, whole=True),
    }


def _gemma4_unified(asked: Asked) -> dict[str, Item]:
    """As Gemma 4's; a patch is a soft token."""
    return {
        kind: Item(item.tokens, min(item.tokens, item.patches // asked.number("pooling_kernel_size", 3) ** 2))
        for kind, item in _gemma4(asked).items()
    }


def _llama4(asked: Asked) -> dict[str, Item]:
    """Up to 16 tiles and the whole image."""
    side = asked.number("image_size", 336) // asked.number("patch_size", 14)
    ratio = asked.vision.get("pixel_shuffle_ratio", 0.5)
    each = (
        int(side * side * ratio * ratio) if isinstance(ratio, float) and 0 < ratio <= 1 else side * side // 4
    )
    tiles = asked.rule.tiles + 1
    return {"image": Item(max(1, tiles * each), tiles * side * side)}


def _pixtral(asked: Asked) -> dict[str, Item]:
    merge = asked.config.get("spatial_merge_size", asked.vision.get("spatial_merge_size", 1))
    merge = merge if isinstance(merge, int) and merge > 0 else 1
    patch = asked.number("patch_size", 16)
    side = ceil_div(asked.number("image_size", 1024), patch * merge)
    breaks = side if asked.rules.pixtral_breaks else 0
    return {"image": Item(side * side + breaks, side * side * merge * merge)}


def _internvl(asked: Asked) -> dict[str, Item]:
    """Tiles and a thumbnail; a video's frames are one tile each, as many as the sequence holds."""
    size = asked.config.get("force_image_size")
    size = size if isinstance(size, int) and size > 0 else asked.number("image_size", 448)
    side = size // asked.number("patch_size", 14)
    tokens = max(1, side * side // 4)
    given = asked.processor.get("max_dynamic_patch", asked.config.get("max_dynamic_patch"))
    tiles = (given if isinstance(given, int) and given > 0 else 12) + 1
    image = Item(tiles * tokens, tiles * side * side)
    if not _internvl_video(asked.config.get("llm_config")):
        return {"image": image}
    counted, run = (asked.at_most(max(1, room // tokens)) for room in asked.room(image.tokens))
    return {"image": image, "video": Item(counted * tokens, run * side * side)}


def _internvl_video(text: object) -> bool:
    """InternVLProcessingInfo.ctx_video_token: language models whose tokenizer has a token for videos."""
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    return not isinstance(kind, str) or kind in ("qwen2", "qwen3", "qwen3_moe", "gpt_oss")


_KIMI_PATCHES = 16_384
"""in_patch_limit of moonshotai/Kimi-K2.5 preprocessor_config.json; a chunk of a video has fewer."""


def _kimi_k25(asked: Asked) -> dict[str, Item]:
    return {"vision_chunk": Item(_KIMI_PATCHES // 4, _KIMI_PATCHES)}


def _kimi_vl(asked: Asked) -> dict[str, Item]:
    """MaxImageTokenMeta: 1,024 x 1,024."""
    side = 2 * ceil_div(1024, 2 * asked.number("patch_size", 14))
    return {"image": Item(side * side // 4, side * side)}


def _llava(asked: Asked) -> dict[str, Item]:
    if asked.vision.get("model_type") == "pixtral":
        return _pixtral(asked)
    side = asked.number("image_size", 336) // asked.number("patch_size", 14)
    return {"image": Item(side * side, side * side + 1)}


def _lfm2(asked: Asked) -> dict[str, Item]:
    """One square of max_image_tokens (Lfm2VLProcessingInfo.get_image_size_with_most_features): no tiles."""

    def number(key: str, default: int) -> int:
        value = asked.processor.get(key, asked.config.get(key))
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default

    side = isqrt(number("max_image_tokens", 256))
    return {"image": Item(side * side, (side * number("downsample_factor", 2)) ** 2)}


_M3_IMAGE, _M3_VIDEO, _M3_FRAMES = 672 * 672, 768 * 28 * 28, 500
"""max_pixels of MiniMaxVLProcessor's images and of a video's frame (vllm/transformers_utils/processors/
minimax_m3.py), and _MAX_FRAMES_PER_VIDEO (vllm/models/minimax_m3/common/mm_preprocess.py)."""


def _minimax_m3(asked: Asked) -> dict[str, Item]:
    """The largest square image; pairs of frames of the largest area, as many as the sequence holds."""
    unit = asked.number("patch_size", 14) * 2
    side = max(1, isqrt(asked.most_pixels(Pixels(1, _M3_IMAGE), "images_kwargs")) // unit)
    pair = max(1, asked.most_pixels(Pixels(1, _M3_VIDEO), "videos_kwargs") // unit**2)
    most = min(_M3_FRAMES, asked.frames or _M3_FRAMES)
    video = pair * ceil_div(max(1, min(2 * (asked.length // pair), most)), 2)
    return {"image": Item(side * side, 4 * side * side), "video": Item(video, 4 * video)}


def _dots_ocr(asked: Asked) -> dict[str, Item]:
    """rednote-hilab/dots.ocr preprocessor_config.json; images alone."""
    unit = asked.number("patch_size", 14) * 2
    image = _image_tokens(asked, asked.most_pixels(Pixels(1, 11_289_600), "images_kwargs"), unit)
    return {"image": Item(image, 4 * image)}


def _omni(asked: Asked) -> dict[str, Item]:
    """The images and videos of Qwen2-VL, half a minute of sound."""
    return {**_qwen2(asked), "audio": Item(750, 1500, tower="audio")}


RULES: dict[str, Callable[[Asked], dict[str, Item]]] = {
    "qwen2": _qwen2,
    "dots_ocr": _dots_ocr,
    "omni": _omni,
    "qwen3": _qwen3,
    "image_alone": _image_alone,
    "glm4v": _glm4v,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4_unified,
    "llama4": _llama4,
    "pixtral": _pixtral,
    "internvl": _internvl,
    "kimi_k25": _kimi_k25,
    "kimi_vl": _kimi_vl,
    "minimax_m3": _minimax_m3,
    "lfm2": _lfm2,
    "llava": _llava,
    **IMAGES,
    **CROPS,
    **AUDIO,
}
"""Rules that `ModelClass.largest_item` names."""
BY_MEMORY = frozenset({"gemma4"})
"""Rules whose items depend on the GPU's memory."""


def largest_items_of(name: str, asked: Asked) -> dict[str, Item]:
    """Modality → the largest item of a class that has a rule."""
    return RULES[class_of(name).largest_item](asked)


_NO_RULE = Rule(pixels=Pixels(1, 12_845_056), video_pixels=Pixels(1, 25_165_824), tiles=16)


def rule_of(config: Json) -> Rule:
    """How the model's own processor counts, for its limits of pixels."""
    found = lineage_of(str(config.get("model_type") or "")).media
    if found is None:
        return _NO_RULE
    return found if found.pixels else _filled(found)


def _filled(found: Rule) -> Rule:
    from kvplan.record import replace

    return replace(found, pixels=_NO_RULE.pixels, video_pixels=_NO_RULE.video_pixels)
