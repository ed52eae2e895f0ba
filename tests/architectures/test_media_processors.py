"""Media tokens beside transformers' own processors, which need no network for this."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.architectures.media.asked import Media
from kvplan.architectures.media.request import media_tokens
from kvplan.model import Model

pytest.importorskip("transformers")
pytest.importorskip("torchvision", reason="transformers' image processors need torchvision")

RANDOM = random.Random(11)
SIZES = [(1280, 720), (224, 224), (640, 480), (4000, 3000), (30, 40), (1, 150), (7680, 4320), (336, 336)] + [
    (RANDOM.randint(20, 5000), RANDOM.randint(30, 4000)) for _ in range(250)
]
"""(width, height)."""


def counted(config: dict[str, Any], **media: Any) -> int:
    """The tokens of one request by kvplan's rules."""
    model = Model(
        id="m",
        source="test",
        model_type=config["model_type"],
        architecture=None,
        runs=(),
        dtype=None,
        max_model_len=None,
        config=config,
    )
    return media_tokens(model, Media(**media)).total


def stretched(size: tuple[int, int]) -> bool:
    return max(size) > 200 * min(size)


QWEN = {
    "qwen2_5_vl": (14, 3136, 12_845_056),
    "qwen3_vl": (16, 65_536, 16_777_216),
}


@pytest.mark.parametrize("kind", QWEN)
def test_qwen_images(kind: str) -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    patch, least, most = QWEN[kind]
    processor = Qwen2VLImageProcessor(
        patch_size=patch, merge_size=2, size={"shortest_edge": least, "longest_edge": most}
    )
    config = {"model_type": kind, "vision_config": {"patch_size": patch, "spatial_merge_size": 2}}
    for width, height in SIZES:
        theirs = processor.get_number_of_image_patches(height, width, {}) // 4
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)
        assert counted(config, images=3, image_size=(width, height)) == 3 * theirs


def test_qwen_limits_of_the_server() -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    processor = Qwen2VLImageProcessor(size={"shortest_edge": 100_000, "longest_edge": 400_000})
    config = {"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 14}}
    for width, height in SIZES:
        theirs = processor.get_number_of_image_patches(height, width, {}) // 4
        ours = counted(config, images=1, image_size=(width, height), min_pixels=100_000, max_pixels=400_000)
        assert ours == theirs


def test_qwen_videos() -> None:
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    old = Qwen2VLVideoProcessor()
    new = Qwen3VLVideoProcessor(size={"shortest_edge": 4096, "longest_edge": 25_165_824})
    for (width, height), frames in zip(SIZES, [1, 2, 3, 4, 16, 31, 128, 600] * 40, strict=False):
        theirs = old.get_num_of_video_patches(frames, height, width, {}) // 4
        config = {"model_type": "qwen2_vl", "vision_config": {"patch_size": 14}}
        assert counted(config, video_frames=frames, image_size=(width, height)) == theirs
        if frames > 1:
            theirs = new.get_num_of_video_patches(frames, height, width, {}) // 4
            config = {"model_type": "qwen3_vl", "vision_config": {"patch_size": 16}}
            assert counted(config, video_frames=frames, image_size=(width, height)) == theirs, frames


def test_glm() -> None:
    from transformers.models.glm4v.image_processing_glm4v import Glm4vImageProcessor

    processor = Glm4vImageProcessor(size={"shortest_edge": 12_544, "longest_edge": 9_633_792})
    config = {"model_type": "glm4v_moe", "vision_config": {"patch_size": 14}}
    for width, height in SIZES:
        theirs = processor.get_number_of_image_patches(height, width, {}) // 4
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)


@pytest.mark.parametrize(("patch", "merge", "side"), [(16, 1, 1024), (14, 2, 1540)])
def test_pixtral(patch: int, merge: int, side: int) -> None:
    import numpy as np
    from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size

    config = {
        "model_type": "mistral3" if merge == 2 else "pixtral",
        "spatial_merge_size": merge,
        "vision_config": {"model_type": "pixtral", "patch_size": patch, "image_size": side},
    }
    step = patch * merge
    for width, height in SIZES[:120]:
        image = np.broadcast_to(np.zeros((1, 1, 1)), (height, width, 3))
        tall, wide = get_resize_output_image_size(image, size=(side, side), patch_size=(step, step))
        theirs = (wide // step + 1) * (tall // step)
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)


def test_llava_next() -> None:
    from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

    grid = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    config = {
        "model_type": "llava_next",
        "image_grid_pinpoints": grid,
        "vision_feature_select_strategy": "default",
        "vision_config": {"patch_size": 14, "image_size": 336},
    }
    stand_in: Any = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=grid),
        patch_size=14,
        num_additional_image_tokens=1,
    )
    stand_in._get_unpadded_features = lambda *sizes: LlavaNextProcessor._get_unpadded_features(
        stand_in, *sizes
    )
    for width, height in SIZES:
        theirs = LlavaNextProcessor._get_number_of_features(stand_in, height, width, 336, 336) - 1
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)


def test_internvl() -> None:
    from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor

    processor = GotOcr2ImageProcessor(
        size={"height": 448, "width": 448}, crop_to_patches=True, min_patches=1, max_patches=12
    )
    config = {"model_type": "internvl", "image_seq_length": 256, "vision_config": {"image_size": [448, 448]}}
    config["vision_config"] = {"image_size": 448}
    for width, height in SIZES:
        theirs = 2 + 256 * processor.get_number_of_image_patches(height, width, {})
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)


def test_llama4() -> None:
    import torch
    from transformers.image_utils import SizeDict
    from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit
    from transformers.models.llama4.processing_llama4 import Llama4Processor

    shapes = torch.tensor(find_supported_resolutions(16, SizeDict(height=336, width=336)))
    config = {
        "model_type": "llama4",
        "vision_config": {"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5},
    }
    for width, height in SIZES:
        best = get_best_fit((height, width), shapes)
        ratio = (int(best[0]) // 336, int(best[1]) // 336)
        text = Llama4Processor._prompt_split_image(SimpleNamespace(), ratio, 144)
        assert counted(config, images=1, image_size=(width, height)) == text.count("<|"), (width, height)


def test_gemma4() -> None:
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    config = {
        "model_type": "gemma4",
        "vision_soft_tokens_per_image": 280,
        "vision_config": {"patch_size": 16, "pooling_kernel_size": 3},
    }
    for width, height in SIZES:
        tall, wide = get_aspect_ratio_preserving_size(height, width, 16, 280 * 9, 3)
        theirs = tall // 16 * (wide // 16) // 9
        assert counted(config, images=1, image_size=(width, height)) == theirs, (width, height)


def test_audio() -> None:
    from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import _get_feat_extract_output_lengths

    for seconds in (1, 2, 7, 15, 29, 30, 41):
        frames = min(seconds, 30) * 100
        theirs = int(_get_feat_extract_output_lengths(frames))
        assert counted({"model_type": "qwen2_audio"}, audio_seconds=seconds) == theirs
