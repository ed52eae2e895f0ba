"""The dummy images and videos of classes with tiles, crops, or a processor whose numbers no config has.

vllm-project/vllm vllm/model_executor/models/ and vllm/models/, 0.32 and 0.33, each class's ``ProcessingInfo``
and ``DummyInputsBuilder``; the numbers that are not there are the defaults of the processor's own class
(huggingface/transformers 5.19, vllm/transformers_utils/processors/), or of the checkpoint that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt, sqrt

from kvplan.architectures.media.rule import Pixels
from kvplan.engines.vllm.encoder_profile.dummy_items import (
    Asked,
    Item,
    largest_square,
    pairs,
    squarest,
    whole,
)
from kvplan.units import ceil_div


def _step3(asked: Asked) -> dict[str, Item]:
    """3,024 × 3,024 pixels: 36 crops of 504 × 504 in six rows, the whole image at 728 × 728, a token before
    and after each, five ends of rows (step3_vl.py; transformers_utils/processors/step3_vl.py)."""
    patch = asked.number("patch_size", 14)
    crops = 36 if asked.vision.get("enable_patch", True) else 0
    tokens = crops * (81 + 2) + (5 if crops else 0) + 169 + 2
    return {"image": Item(tokens, (728 // patch) ** 2 + crops * (504 // patch) ** 2)}


def _muse_glimmer(asked: Asked) -> dict[str, Item]:
    """max_image_tokens 4,096; a video of up to 96 frames, two to a group of 144 tokens."""
    image = isqrt(asked.stated("max_image_tokens", 4096)) ** 2
    group = asked.stated("max_video_frame_tokens", 144)
    frames = asked.at_most(2 * max(1, min(asked.length // group, 48)))
    video = ceil_div(frames, 2) * group
    return {
        "image": Item(image, 4 * image),
        "video": Item(video, 4 * isqrt(group) ** 2 * ceil_div(frames, 2)),
    }


def _phi3v(asked: Asked) -> dict[str, Item]:
    """50 × 8,000 pixels: num_crops tiles in a column and the whole image, 144 tokens each; a line's end for
    each of 12 lines of a tile (4 crops in microsoft/Phi-3.5-vision-instruct preprocessor_config.json)."""
    crops = asked.stated("num_crops", 4)
    tokens = (crops + 1) * 144 + 1 + (crops + 1) * 12
    return {"image": Item(tokens, (crops + 1) * (24 * 24 + 1))}


def _phi4mm(asked: Asked) -> dict[str, Item]:
    """A column of dynamic_hd squares of 448 pixels (36 in microsoft/Phi-4-multimodal-instruct
    preprocessor_config.json) and the whole image, 16 × 16 tokens each, with ends of lines; 241,000 samples of
    sound (_AUDIO_MAX_SOUNDFILE_SIZE): 1,504 frames, 8 to a token, a sound at a time."""
    squares = asked.stated("dynamic_hd", 36)
    tokens = 16 * 16 * (squares + 1) + 16 * (squares + 1) + 1
    return {
        "image": Item(tokens, (squares + 1) * 32 * 32),
        "audio": Item(188, 1, at_once=1, tower="audio"),
    }


_ERNIE_IMAGE, _ERNIE_FRAME = 6177 * 28 * 28, 1196 * 28 * 28
"""Most pixels of an image and of a video's frame: the image and video processors of ernie4_5_vl_moe."""


def _ernie(asked: Asked) -> dict[str, Item]:
    """Pairs of frames counted as large images, as many as the sequence holds; each frame is run, at the
    largest size that the video's own processor leaves it."""
    unit = asked.number("patch_size", 14) * asked.number("spatial_merge_size", 2)
    image = largest_square(asked.most_pixels(Pixels(1, _ERNIE_IMAGE), "images_kwargs"), unit)
    frame = largest_square(asked.most_pixels(Pixels(1, _ERNIE_FRAME), "videos_kwargs"), unit)
    counted, run = (max(1, room // image) for room in asked.room(image))
    pairs = ceil_div(asked.at_most(2 * run), 2)
    return {"image": Item(image, 4 * image), "video": Item(counted * image, 2 * pairs * 4 * frame)}


def _kimi_k3(asked: Asked) -> dict[str, Item]:
    """in_patch_limit of moonshotai/Kimi-K2.5 preprocessor_config.json; Kimi-K3's own is not public."""
    return {"image": Item(16_384 // 4, 16_384)}


def _deepseek_v41(asked: Asked) -> dict[str, Item]:
    """max_image_tokens of the encoder (vllm/transformers_utils/configs/deepseek_v41.py)."""
    most = asked.number("max_image_tokens", 1024)
    joined = asked.number("downsample_ratio", 3) ** 2
    return {"image": Item(most, most * joined)}


def _deepseek_ocr(asked: Asked) -> dict[str, Item]:
    """1,280 × 1,280 pixels: 16 lines of 16 and an end of the whole image, 20 lines of 20 and an end of two by
    two crops, a separator; an image at a time."""
    return {"image": Item(16 * 17 + 20 * 21 + 1, 1, at_once=1)}


def _deepseek_ocr2(asked: Asked) -> dict[str, Item]:
    """1,536 × 1,536 pixels: 16 × 16 tokens of the whole image, 12 × 12 of each of two by two crops, a
    separator; an image at a time (deepseek_ocr2.py)."""
    return {"image": Item(16 * 16 + 4 * 12 * 12 + 1, 1, at_once=1)}


_GLM5_IMAGE, _GLM5_VIDEO = 8000, 30_000
"""max_image_tokens of Glm5NextImageProcessor, and _MAX_VIDEO_TOKENS of vllm/models/glm5next."""


def _glm5_next(asked: Asked) -> dict[str, Item]:
    image = asked.stated("max_image_tokens", _GLM5_IMAGE)
    counted, run = (max(1, min(_GLM5_VIDEO, room)) for room in asked.room(image))
    return {"image": Item(image, 4 * image), "video": Item(counted, 4 * run)}


def _cohere2(asked: Asked) -> dict[str, Item]:
    """A column of max_patches tiles, and the whole image."""
    side = asked.number("image_size", 512) // asked.number("patch_size", 16)
    tiles = asked.stated("max_patches", 12) + 1
    joined = asked.stated("downsample_factor", 2)
    return {"image": Item(tiles * max(1, side // joined) ** 2, tiles * max(1, side) ** 2)}


def _idefics3(asked: Asked) -> dict[str, Item]:
    """size.longest_edge is four tiles in every published checkpoint: 4 × 4 and the whole image."""
    side = asked.number("image_size", 512) // asked.number("patch_size", 16)
    joined = asked.stated("scale_factor", 2)
    return {"image": Item(17 * max(1, side // joined) ** 2, 17 * max(1, side) ** 2)}


def _llava_next(asked: Asked) -> dict[str, Item]:
    """The grid of image_grid_pinpoints with the most tiles, an end to each line, and the whole image."""
    size = asked.number("image_size", 336)
    side = max(1, size // asked.number("patch_size", 14))
    best = max(
        ((high * low * side * side + high * side, high * low) for high, low in _pinpoints(asked, size)),
        default=(side * side + side, 1),
    )
    return {"image": Item(best[0] + side * side, (best[1] + 1) * (side * side + 1))}


def _pinpoints(asked: Asked, size: int) -> list[tuple[int, int]]:
    """Tiles in height and width of each pinpoint."""
    found = [(high // size, low // size) for high, low in pairs(asked.config.get("image_grid_pinpoints"))]
    return [(high, low) for high, low in found if high and low]


_WIDE, _HIGH = 1153, 944


def _llava_onevision(asked: Asked) -> dict[str, Item]:
    """1,153 × 944 pixels in the grid of image_grid_pinpoints that keeps most of them and wastes least, its
    empty columns or lines left out, shrunk above nine tiles' worth; up to 16 frames (_MAX_FRAMES_PER_VIDEO),
    a quarter of the tokens each and one at the end."""
    size = asked.number("image_size", 384)
    side = max(1, size // asked.number("patch_size", 14))
    points = _pinpoints(asked, size) or [(high, low) for high in range(1, 7) for low in range(1, 7)]

    def fit(point: tuple[int, int]) -> tuple[int, int]:
        high, low = point[0] * size, point[1] * size
        scale = min(low / _WIDE, high / _HIGH)
        kept = min(int(_WIDE * scale) * int(_HIGH * scale), _WIDE * _HIGH)
        return kept, kept - high * low

    high, low = max(points, key=fit)
    lines, across = high * side, low * side
    if _WIDE * lines > across * _HIGH:
        lines -= 2 * ((lines - _HIGH * across // _WIDE) // 2)
    else:
        across -= 2 * ((across - _WIDE * lines // _HIGH) // 2)
    ratio = sqrt(lines * across / (9 * side * side))
    if ratio > 1.1:
        lines, across = int(lines // ratio), int(across // ratio)
    frame = ceil_div(side, 2) ** 2
    frames = asked.at_most(max(1, min(16, (asked.length - 1) // frame)))
    return {
        "image": Item(lines * across + lines + side * side, (high * low + 1) * side * side),
        "video": Item(frames * frame + 1, frames * side * side),
    }


def _paligemma(asked: Asked) -> dict[str, Item]:
    side = max(1, asked.number("image_size", 224) // asked.number("patch_size", 14))
    return {"image": Item(side * side, side * side)}


def minicpmv(asked: Asked) -> dict[str, Item]:
    """Nine slices and the whole image, query_num tokens each; up to 16 frames of one slice."""
    query = asked.stated("query_num", 64)
    side = whole(asked.config.get("image_size"), 448) // asked.number("patch_size", 14)
    slices = asked.stated("max_slice_num", asked.stated("max_slice_nums", 9)) + 1
    counted, run = (max(1, min(16, room // query)) for room in asked.room(slices * query))
    return {
        "image": Item(slices * query, slices * side * side),
        "video": Item(counted * query, asked.at_most(run) * side * side),
    }


def _paddleocr(asked: Asked) -> dict[str, Item]:
    """2,822,400 pixels (PaddlePaddle/PaddleOCR-VL preprocessor_config.json), an image at a time."""
    unit = asked.number("patch_size", 14) * 2
    image = max(1, asked.most_pixels(Pixels(1, 2_822_400), "images_kwargs") // unit**2)
    return {"image": Item(image, 4 * image, at_once=4 * image)}


def _nemotron_nano(asked: Asked) -> dict[str, Item]:
    """Twelve tiles and the whole image; a video that fills the sequence, 128 frames at once
    (nano_nemotron_vl.py, _extract_embeddings_from_pixels)."""
    size = whole(asked.config.get("force_image_size"), 512)
    side = max(2, size // whole(asked.config.get("patch_size"), 16))
    tokens, tiles = side * side // 4, asked.stated("max_num_tiles", 12) + 1
    frames = asked.at_most(max(1, asked.room(tiles * tokens)[1] // tokens))
    return {
        "image": Item(tiles * tokens, tiles * side * side),
        "video": Item(asked.length, frames * side * side, at_once=128 * side * side),
    }


def _mimo(asked: Asked) -> dict[str, Item]:
    """Images as Qwen2-VL's; up to 14 frames, each counted as often as tokens_per_second says and run once;
    the limit of pixels, of a frame too, is that of XiaomiMiMo/MiMo-V2.5 config.json, processor_config."""
    merge = asked.number("spatial_merge_size", 2)
    unit = asked.number("patch_size", 16) * merge
    most = asked.most_pixels(asked.rule.pixels or Pixels(1, 8_388_608), "images_kwargs")
    image = squarest(max(1, most // unit**2))
    second = asked.number("tokens_per_second", 2)

    def frames(room: int) -> int:
        return asked.at_most(min(14, max(1, 2 * (room // image) // second)))

    counted = frames(asked.length)
    pairs = ceil_div(counted * second if counted > 1 else 1, 2)
    run = ceil_div(frames(asked.longest), 2)
    return {
        "image": Item(image, image * merge * merge),
        "video": Item(pairs * image, run * image * merge * merge),
    }


def _inkling(asked: Asked) -> dict[str, Item]:
    """An image of four patches a side; 12,000 tokens of sound (MAX_AUDIO_TOKENS)."""
    kinds = {"image": Item(16, 16)}
    if isinstance(asked.config.get("audio_config"), Mapping):
        kinds["audio"] = Item(12_000, 12_000, tower="audio")
    return kinds


IMAGES: dict[str, Callable[[Asked], dict[str, Item]]] = {
    "step3": _step3,
    "muse_glimmer": _muse_glimmer,
    "phi3v": _phi3v,
    "phi4mm": _phi4mm,
    "ernie": _ernie,
    "kimi_k3": _kimi_k3,
    "deepseek_v41": _deepseek_v41,
    "deepseek_ocr": _deepseek_ocr,
    "deepseek_ocr2": _deepseek_ocr2,
    "glm5_next": _glm5_next,
    "cohere2": _cohere2,
    "idefics3": _idefics3,
    "llava_next": _llava_next,
    "llava_onevision": _llava_onevision,
    "paligemma": _paligemma,
    "minicpmv": minicpmv,
    "paddleocr": _paddleocr,
    "nemotron_nano": _nemotron_nano,
    "mimo": _mimo,
    "inkling": _inkling,
}
