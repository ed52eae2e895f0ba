"""More dummy images and videos: crops, frames by the hundred, and towers of one size.

vllm-project/vllm vllm/model_executor/models/, 0.32 and 0.33, each class's ``ProcessingInfo`` and
``DummyInputsBuilder``; the numbers that are not there are those of the checkpoint that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt, sqrt

from kvplan.architectures.media.rule import Pixels
from kvplan.engines.vllm.encoder_profile.dummy_images import minicpmv
from kvplan.engines.vllm.encoder_profile.dummy_items import Asked, Item, largest_square, pairs, whole
from kvplan.units import ceil_div


def _gemma3n(asked: Asked) -> dict[str, Item]:
    """768 × 768 pixels (google/gemma-3n-E4B-it preprocessor_config.json), 256 tokens; 188 tokens of sound
    (gemma3n_mm.py, TOKENS_PER_IMAGE, TOKENS_PER_AUDIO; input_feat_size columns of half a minute)."""
    image = whole(asked.config.get("vision_soft_tokens_per_image"), 256)
    heard = whole(asked.config.get("audio_soft_tokens_per_image"), 188)
    return {"image": Item(image, 1), "audio": Item(heard, 4 * heard, tower="audio")}


_MARGIN = 4
"""overlap_margins of allenai/Molmo2-4B preprocessor_config.json; 8 crops of 27 × 27 patches, pooled by 2 × 2;
384 frames pooled by 3 × 3 (video_preprocessor_config.json)."""


def _molmo2(asked: Asked) -> dict[str, Item]:
    """The tiling of most tokens and the whole image; as many frames as the sequence holds (molmo2.py)."""
    size = asked.vision.get("image_default_input_size")
    pixels = whole(size[0], 378) if isinstance(size, (list, tuple)) and size else 378
    side = max(1, pixels // whole(asked.vision.get("image_patch_size"), 14))
    crops = asked.stated("max_crops", 8)
    window = max(1, side - 2 * _MARGIN)

    def pooled(tiles: int) -> int:
        return ceil_div(tiles * window + 2 * _MARGIN, 2)

    joint = max(pooled(high) * (pooled(crops // high) + 1) for high in range(1, crops + 1))
    frame = 2 + ceil_div(side, 3) ** 2
    frames = asked.at_most(max(1, min(asked.stated("num_frames", 384), asked.length // frame)))
    return {
        "image": Item(4 + ceil_div(side, 2) ** 2 + joint, (crops + 1) * side * side),
        "video": Item(frames * frame, frames * side * side),
    }


def _ovis25(asked: Asked) -> dict[str, Item]:
    """1,792 × 1,792 pixels whatever is asked, a token before and after; frames of that size, each counted
    with every patch (ovis2_5.py, transformers_utils/processors/ovis2_5.py)."""
    stride = asked.number("hidden_stride", 2) ** 2
    patches = max(1, 1792 // asked.number("patch_size", 16)) ** 2
    counted, run = (asked.at_most(max(1, room // patches)) for room in asked.room(patches))
    return {
        "image": Item(max(1, patches // stride) + 2, patches),
        "video": Item(counted * max(1, patches // stride) + 2, run * patches),
    }


def _minicpmo(asked: Asked) -> dict[str, Item]:
    """MiniCPM-V's images and frames; 30 chunks of a second, 25 tokens each where two are pooled
    (minicpmo.py)."""
    pooled = whole(asked.config.get("audio_pool_step"), 2)
    heard = 30 * max(1, (50 - pooled) // pooled + 1)
    return {**minicpmv(asked), "audio": Item(heard, 1500, tower="audio")}


def _minicpmv46(asked: Asked) -> dict[str, Item]:
    """A column of slices of 448 × 448, and the whole image in as many pixels as a slice, its sides multiples
    of four patches; sixteen patches to a token (four with downsample_mode 4x). Frames are cut as images are,
    up to 16 of them (minicpmv4_6.py; MiniCPMV4_6ImageProcessor)."""
    joined = 4 if asked.processor.get("downsample_mode", asked.config.get("downsample_mode")) == "4x" else 16
    slices = asked.stated("max_slice_nums", 9)
    whole_image = _fours(32 / sqrt(slices)) * _fours(32 * sqrt(slices))
    patches = (slices if slices > 1 else 0) * 32 * 32 + whole_image
    tokens = patches // joined
    counted, run = (max(1, min(16, room // tokens)) for room in asked.room(tokens))
    return {
        "image": Item(tokens, patches),
        "video": Item(counted * tokens, asked.at_most(run) * patches),
    }


def _fours(patches: float) -> int:
    """The nearest multiple of four, one at least."""
    return max(round(patches / 4), 1) * 4


def _tiles(asked: Asked) -> dict[str, Item]:
    """BaseInternVLProcessingInfo: tiles and a thumbnail, images alone (skyworkr1v.py, qianfan_ocr.py,
    eagle2_5_vl.py)."""
    size = whole(asked.config.get("force_image_size"), asked.number("image_size", 448))
    side = max(2, size // asked.number("patch_size", 14))
    tiles = asked.stated("max_dynamic_patch", 12) + 1
    return {"image": Item(tiles * (side * side // 4), tiles * side * side)}


def _glm4v(asked: Asked) -> dict[str, Item]:
    """image_size squared (1,120 in THUDM/glm-4v-9b config.json), joined by 2 × 2, a token before and after
    (glm4v.py, get_replacement)."""
    side = max(2, asked.number("image_size", 1120) // asked.number("patch_size", 14))
    return {"image": Item((side // 2) ** 2 + 2, side * side)}


def _phi4_siglip(asked: Asked) -> dict[str, Item]:
    """max_num_patches counted, the largest square of them run (phi4siglip.py)."""
    most = asked.stated("max_num_patches", 3600)
    return {"image": Item(most, isqrt(most) ** 2)}


def _molmo(asked: Asked) -> dict[str, Item]:
    """A column of max_crops crops of 24 × 24 patches that share four on each side, and the whole image; 2 × 2
    patches to a token, ends of lines not counted (12 in allenai/Molmo-7B-D-0924 preprocessor_config.json;
    molmo.py: get_image_size_with_most_features)."""
    crops = asked.stated("max_crops", 12)
    joined = max((8 * high + 4) * (8 * (crops // high) + 4) for high in range(1, crops + 1))
    return {"image": Item(12 * 12 + joined, (crops + 1) * 24 * 24)}


_DEEPSEEK_VL2 = tuple((1, long) for long in range(1, 10))
"""candidate_resolutions of deepseek-ai/deepseek-vl2 config.json that have the most tiles, in tiles."""


def _deepseek_vl2(asked: Asked) -> dict[str, Item]:
    """The candidate of most tokens and the whole image: 14 × 14 tokens of a tile of 384 pixels, an end to
    each line, a separator; tiles filled up to 28 × 28 patches (deepseek_vl2.py: dynamic_img_pad)."""
    size = 384
    found = pairs(asked.config.get("candidate_resolutions"))
    tiles = [(high // size, low // size) for high, low in found] or list(_DEEPSEEK_VL2)
    side = ceil_div(size, 14)
    joined = side // 2
    tokens = {
        (high, low): high * joined * (low * joined + 1) for pair in tiles for high, low in (pair, pair[::-1])
    }
    high, low = max(tokens, key=tokens.__getitem__)
    return {"image": Item(joined * (joined + 1) + 1 + tokens[high, low], (high * low + 1) * side * side)}


def _ovis(asked: Asked) -> dict[str, Item]:
    """A huge square in the squarest grid of max_partition tiles (9: transformers_utils/processors/ovis.py)
    and the whole image; hidden_stride² patches to a token, a token for each tile, between columns and lines
    and at three ends."""
    rows = isqrt(whole(asked.processor.get("max_partition"), 9))
    tiles = rows * rows + (1 if rows > 1 else 0)
    side = ceil_div(asked.number("image_size", 448), asked.number("patch_size", 14))
    part = asked.config.get("visual_tokenizer_config")
    stride = whole(part.get("hidden_stride"), 2) if isinstance(part, Mapping) else 2
    of_a_tile = max(1, side // stride) ** 2
    return {"image": Item(tiles * of_a_tile + rows * rows + 2, tiles * side * side)}


def _aria(asked: Asked) -> dict[str, Item]:
    """image_size squared; as many tokens as projector_patch_to_query_dict has at most (aria.py)."""
    side = asked.number("image_size", 980) // asked.number("patch_size", 14)
    stated = asked.config.get("projector_patch_to_query_dict")
    queries = [whole(value, 1) for value in stated.values()] if isinstance(stated, Mapping) else []
    return {"image": Item(max(queries, default=256), side * side)}


def _moondream(asked: Asked) -> dict[str, Item]:
    """378 × 378 pixels and one crop, 27 × 27 tokens and one before them; an image at a time
    (moondream3.py)."""
    return {"image": Item(27 * 27 + 1, 1, at_once=1)}


_KEYE_IMAGE = 1_003_520
"""max_pixels of Kwai-Keye/Keye-VL-8B-Preview preprocessor_config.json."""


def _keye(most: int) -> Callable[[Asked], dict[str, Item]]:
    """most: frames of a video."""

    def rule(asked: Asked) -> dict[str, Item]:
        """The largest square; frames of that size, as many as the images that a prompt may have leave room
        for, and one at least: without limits one (keye.py, get_num_frames_with_most_features)."""
        merge = asked.number("spatial_merge_size", 2)
        unit = asked.number("patch_size", 14) * merge
        image = largest_square(asked.most_pixels(Pixels(1, _KEYE_IMAGE), "images_kwargs"), unit)

        def frames(length: int) -> int:
            left = max(0, length // image - asked.images)
            return max(1, min(left // max(1, asked.videos), most))

        counted, run = frames(asked.length), asked.at_most(frames(asked.longest))
        return {
            "image": Item(image, image * merge * merge),
            "video": Item(counted * image, run * image * merge * merge),
        }

    return rule


CROPS: dict[str, Callable[[Asked], dict[str, Item]]] = {
    "gemma3n": _gemma3n,
    "molmo2": _molmo2,
    "ovis25": _ovis25,
    "minicpmo": _minicpmo,
    "minicpmv46": _minicpmv46,
    "tiles": _tiles,
    "glm4v_9b": _glm4v,
    "phi4_siglip": _phi4_siglip,
    "molmo": _molmo,
    "deepseek_vl2": _deepseek_vl2,
    "ovis": _ovis,
    "moondream": _moondream,
    "aria": _aria,
    "keye": _keye(16),
    "keye15": _keye(2048),
}
