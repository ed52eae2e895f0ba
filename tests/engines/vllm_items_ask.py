"""What vLLM's own ProcessingInfo classes count for their largest items: run inside vLLM's environment.

    .venv-vllm/bin/python tests/engines/vllm_items_ask.py < cases.json > answers.json

A case is a class of vllm.model_executor.models, its config, the attributes of its processor that it reads,
and the lengths; nothing of a checkpoint is needed. Answers: tokens by modality as the encoder's budget counts
them with one item of each, and tokens of a video made alone (the dummy of the profile run).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def _open(value: Any) -> Any:
    """Mappings as objects, sizes as they are; a vision config of a type is transformers' own."""
    if isinstance(value, dict) and "model_type" in value and "image_size" in value:
        from transformers import AutoConfig

        return AutoConfig.for_model(**value)
    if isinstance(value, dict):
        return SimpleNamespace(
            **{key: inner if key == "size" else _open(inner) for key, inner in value.items()}
        )
    return [_open(inner) for inner in value] if isinstance(value, list) else value


class _Context:
    """As much of InputProcessingContext as the classes read."""

    def __init__(self, config: Any, length: int, kwargs: dict[str, Any]) -> None:
        self.config, self.kwargs = config, kwargs
        self.model_config = SimpleNamespace(
            hf_config=config, max_model_len=length, trust_remote_code=False, mm_processor_kwargs=kwargs
        )

    def get_hf_config(self, *_: Any) -> Any:
        return self.config

    def get_merged_mm_kwargs(self, given: Any) -> dict[str, Any]:
        return {**self.kwargs, **given}

    def get_mm_config(self) -> Any:
        return SimpleNamespace(get_limit_per_prompt=lambda _: 999, mm_processor_kwargs=self.kwargs)


def _info(case: dict[str, Any], length: int) -> Any:
    module = importlib.import_module(case["module"])
    base = getattr(module, case["info"])
    config, processor = _open(case["config"]), _open(case.get("processor", {}))
    told: dict[str, Any] = {
        "get_hf_config": lambda self: config,
        "get_hf_processor": lambda self, **_: processor,
        "get_feature_extractor": lambda self, **_: processor.feature_extractor,
        "get_video_processor": lambda self, **_: processor.video_processor,
        "_merge_and_resolve_mm_processor_kwargs": lambda self, given: {
            "images_kwargs": {},
            "videos_kwargs": {},
        },
    }
    if hasattr(processor, "image_processor"):
        told["get_image_processor"] = lambda self, **_: processor.image_processor
    kind = type("Asked", (base,), {name: value for name, value in told.items() if hasattr(base, name)})
    info: Any = object.__new__(kind)
    info.ctx = _Context(config, length, case.get("kwargs", {}))
    return info


def _ask(case: dict[str, Any], length: int) -> dict[str, Any]:
    info = _info(case, length)
    kinds = case["kinds"]
    both, alone = dict.fromkeys(kinds, 1), {"video": 1}
    if case["ask"] == "most":
        tokens = dict(info.get_mm_max_tokens_per_item(length, both))
        if "video" not in kinds:
            return {"tokens": tokens}
        return {"tokens": tokens, "video": info.get_mm_max_tokens_per_item(length, alone)["video"]}
    if case["ask"] == "features":
        info.get_hf_config().vision_config = vars(info.get_hf_config().vision_config)
        return {"tokens": {"image": info.get_num_image_feature_tokens()}}
    if case["ask"] == "sound":
        return {"tokens": {"audio": info.get_max_audio_tokens()}}
    if case["ask"] == "tiles":
        return {"tokens": {"image": _of_tiles(info)}}
    if case["ask"] == "queries":
        info.get_hf_config().projector_patch_to_query_dict = case["config"]["projector_patch_to_query_dict"]
        return {"tokens": {"image": info.get_num_image_tokens()}}
    if case["ask"] == "grid":
        return {"tokens": {"image": _of_a_grid(info)}}
    if case["ask"] == "frames":  # the image's tokens, frames of a video beside one and alone
        frames = [info.get_num_frames_with_most_features(length, counts) for counts in (both, alone)]
        return {"tokens": {"image": info.get_max_image_tokens()}, "frames": frames}
    return {"tokens": {"image": info.get_max_image_tokens()}}


def _of_tiles(info: Any) -> int:
    """Embeddings of the largest image; Molmo's count has separators, which are none."""
    processor = info.get_hf_processor()
    if not hasattr(info, "get_patches_grid_size"):
        kind: Any = importlib.import_module("vllm.transformers_utils.processors.deepseek_vl2")
        processor.select_best_resolution = partial(
            kind.DeepseekVLV2Processor.select_best_resolution, processor
        )
    size = info.get_image_size_with_most_features()
    if not hasattr(info, "get_patches_grid_size"):
        return int(info.get_num_image_tokens(image_width=size.width, image_height=size.height))
    images = processor.image_processor
    wide, high = info.get_patches_grid_size(
        image_width=size.width, image_height=size.height, image_processor=images
    )
    whole = images.image_token_length_w * images.image_token_length_h
    return int(wide // 2 * (high // 2) + whole)


def _of_a_grid(info: Any) -> int:
    """Placeholders of Ovis's largest image, by its own processor without a tokenizer."""
    import torch

    pillow: Any = importlib.import_module("PIL.Image")
    kind: Any = importlib.import_module("vllm.transformers_utils.processors.ovis").OvisProcessor
    processor = object.__new__(kind)
    names = ("start", "atom", "prefix", "col_sep", "row_sep", "end", "pad")
    object.__setattr__(
        processor, "extra_special_tokens", {f"image_{name}": n for n, name in enumerate(names)}
    )
    processor.image_segment_len = info.get_image_segment_len()

    def made(image: Any, size: dict[str, int], **_: Any) -> dict[str, Any]:
        return {"pixel_values": torch.zeros(1, 3, size["height"], size["width"])}

    processor.image_processor = SimpleNamespace(size={"shortest_edge": 448}, preprocess=made)
    info.get_hf_processor = lambda: processor
    size = info.get_image_size_with_most_features()
    image = pillow.new("RGB", (size.width, size.height))
    _, placeholders, _ = processor.preprocess_image(image, 9, 0.9, False, "pt")
    return len(placeholders)


def _answered(case: dict[str, Any], length: int) -> dict[str, Any]:
    try:
        return _ask(case, length)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"})
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("vllm_stage").set_stage("h100")
    cases = json.load(sys.stdin)
    answers = [_answered(case, length) for case in cases for length in case["lengths"]]
    print("ANSWERS" + json.dumps(answers))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
