"""The cases of `vllm_items_ask`: class, config, what its processor says, lengths."""

from __future__ import annotations

from typing import Any

LENGTHS = (4096, 32_768, 131_072)
_QWEN = {"size": {"shortest_edge": 3136, "longest_edge": 12_845_056}}


_HEARD = {"chunk_length": 30, "sampling_rate": 16_000, "hop_length": 160}


def _case(name: str, module: str, info: str, config: dict[str, Any], ask: str, **more: Any) -> dict[str, Any]:
    place = module if module.startswith("vllm.") else f"vllm.model_executor.models.{module}"
    return {
        "class": name,
        "module": place,
        "info": info,
        "config": config,
        "ask": ask,
        "kinds": ("image", "video"),
        "lengths": LENGTHS,
        **more,
    }


def _vision(**keys: Any) -> dict[str, Any]:
    return {"vision_config": keys}


_QWEN_VISION = _vision(patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
_TILINGS = [[384 * high, 384 * low] for high in range(1, 10) for low in range(1, 10) if high * low < 10]
CASES = [
    _case(
        "Qwen2VLForConditionalGeneration",
        "qwen2_vl",
        "Qwen2VLProcessingInfo",
        {"model_type": "qwen2_vl", **_QWEN_VISION},
        "most",
        processor={"image_processor": _QWEN},
    ),
    _case(
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl",
        "Qwen2_5_VLProcessingInfo",
        {"model_type": "qwen2_5_vl", **_QWEN_VISION},
        "most",
        processor={"image_processor": _QWEN},
    ),
    _case(
        "DotsOCRForCausalLM",
        "dots_ocr",
        "DotsOCRProcessingInfo",
        {"model_type": "dots_ocr", **_QWEN_VISION},
        "most",
        kinds=("image",),
        processor={"image_processor": {"size": {"shortest_edge": 3136, "longest_edge": 11_289_600}}},
    ),
    _case(
        "Ernie4_5_VLMoeForConditionalGeneration",
        "ernie45_vl",
        "Ernie4_5_VLProcessingInfo",
        {
            "model_type": "ernie4_5_vl_moe",
            "spatial_conv_size": 2,
            "temporal_conv_size": 2,
            **_vision(patch_size=14, spatial_merge_size=2),
        },
        "most",
        processor={"image_processor": {"size": {"shortest_edge": 3136, "longest_edge": 4_842_768}}},
    ),
    _case(
        "MiMoV2OmniForCausalLM",
        "mimo_v2_omni",
        "MiMoV2OmniProcessingInfo",
        {
            "model_type": "mimo_v2",
            **_vision(patch_size=16, spatial_merge_size=2, temporal_patch_size=2, tokens_per_second=2),
        },
        "most",
        processor={"image_processor": {"size": {"shortest_edge": 8192, "longest_edge": 8_388_608}}},
    ),
    _case(
        "MuseGlimmerForConditionalGeneration",
        "muse_glimmer",
        "MuseGlimmerProcessingInfo",
        {"model_type": "muse_glimmer", **_vision(patch_size=14, patch_temporal=2)},
        "most",
        processor={
            "image_processor": {"max_image_tokens": 4096},
            "video_processor": {
                "temporal_patch_size": 2,
                "patch_temporal": 2,
                "max_video_frame_tokens": 144,
                "num_frames": 96,
                "video_num_frames": 96,
            },
        },
    ),
    _case(
        "DeepseekV41ForCausalLM",
        "vllm.models.deepseek_v41.common.mm_preprocess",
        "DeepseekV4VLProcessingInfo",
        {"model_type": "deepseek_v41", "vision_max_n_token": 1024, **_vision()},
        "most",
        kinds=("image",),
    ),
    _case(
        "VoxtralForConditionalGeneration",
        "voxtral",
        "VoxtralProcessingInfo",
        {"model_type": "voxtral"},
        "most",
        kinds=("audio",),
    ),
    _case(
        "LlavaNextForConditionalGeneration",
        "llava_next",
        "LlavaNextProcessingInfo",
        {
            "model_type": "llava_next",
            "vision_feature_select_strategy": "default",
            "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
            **_vision(model_type="clip_vision_model", image_size=336, patch_size=14),
        },
        "image",
    ),
    _case(
        "LlavaOnevisionForConditionalGeneration",
        "llava_onevision",
        "LlavaOnevisionProcessingInfo",
        {
            "model_type": "llava_onevision",
            "vision_feature_select_strategy": "full",
            "image_grid_pinpoints": [[384 * a, 384 * b] for a in range(1, 7) for b in range(1, 7)],
            **_vision(model_type="siglip_vision_model", image_size=384, patch_size=14),
        },
        "frames",
    ),
    _case(
        "Qwen2_5OmniForConditionalGeneration",
        "qwen2_5_omni_thinker",
        "Qwen2_5OmniThinkerProcessingInfo",
        {"model_type": "qwen2_5_omni", **_QWEN_VISION},
        "most",
        kinds=("image", "video", "audio"),
        processor={"image_processor": _QWEN, "feature_extractor": _HEARD},
    ),
    _case(
        "Qwen2AudioForConditionalGeneration",
        "qwen2_audio",
        "Qwen2AudioProcessingInfo",
        {"model_type": "qwen2_audio"},
        "most",
        kinds=("audio",),
        processor={"feature_extractor": _HEARD},
    ),
    _case(
        "Step3VLForConditionalGeneration",
        "step3_vl",
        "Step3VLProcessingInfo",
        {"model_type": "step3_vl", **_vision(patch_size=14)},
        "most",
        kinds=("image",),
    ),
    _case(
        "PixtralForConditionalGeneration",
        "llava",
        "LlavaProcessingInfo",
        {
            "model_type": "llava",
            "vision_feature_select_strategy": "full",
            **_vision(model_type="pixtral", image_size=1024, patch_size=16),
        },
        "image",
    ),
    _case(
        "GraniteSpeechForConditionalGeneration",
        "granite_speech",
        "GraniteSpeechProcessingInfo",
        {"model_type": "granite_speech"},
        "sound",
        kinds=("audio",),
    ),
    _case(
        "Phi4ForCausalLMV",
        "phi4siglip",
        "Phi4SiglipProcessingInfo",
        {"model_type": "phi4-siglip", "max_num_patches": 3600, **_vision(patch_size=16)},
        "most",
        kinds=("image",),
    ),
    _case(
        "GLM4VForCausalLM",
        "glm4v",
        "GLM4VProcessingInfo",
        {"model_type": "chatglm", **_vision(image_size=1120, patch_size=14)},
        "features",
        kinds=("image",),
    ),
    _case(
        "MolmoForCausalLM",
        "molmo",
        "MolmoProcessingInfo",
        {"model_type": "molmo"},
        "tiles",
        kinds=("image",),
        processor={
            "image_processor": {
                "base_image_input_size": [336, 336],
                "image_patch_size": 14,
                "image_token_length_h": 12,
                "image_token_length_w": 12,
                "max_crops": 12,
                "overlap_margins": [4, 4],
            }
        },
    ),
    _case(
        "DeepseekVLV2ForCausalLM",
        "deepseek_vl2",
        "DeepseekVL2ProcessingInfo",
        {"model_type": "deepseek_vl_v2", "candidate_resolutions": _TILINGS},
        "tiles",
        kinds=("image",),
        processor={
            "candidate_resolutions": _TILINGS,
            "image_size": 384,
            "patch_size": 14,
            "downsample_ratio": 2,
        },
    ),
    _case(
        "KeyeForConditionalGeneration",
        "keye",
        "KeyeProcessingInfo",
        {"model_type": "Keye", **_vision(patch_size=14, spatial_merge_size=2)},
        "most",
        processor={"image_processor": {"size": {"min_pixels": 102_400, "max_pixels": 1_003_520}}},
    ),
    _case(
        "KeyeVL1_5ForConditionalGeneration",
        "keye_vl1_5",
        "KeyeVL1_5ProcessingInfo",
        {"model_type": "KeyeVL1_5", **_vision(patch_size=14, spatial_merge_size=2)},
        "most",
        processor={"image_processor": {"size": {"min_pixels": 102_400, "max_pixels": 1_003_520}}},
    ),
    _case(
        "AriaForConditionalGeneration",
        "aria",
        "AriaProcessingInfo",
        {"model_type": "aria", "projector_patch_to_query_dict": {"1225": 128, "4900": 256}},
        "queries",
        kinds=("image",),
    ),
    _case(
        "Ovis",
        "ovis",
        "OvisProcessingInfo",
        {
            "model_type": "ovis",
            "visual_tokenizer_config": {
                "hidden_stride": 2,
                "backbone_config": {"image_size": 448, "patch_size": 14},
            },
        },
        "grid",
        kinds=("image",),
        processor={"image_processor": {"size": {"shortest_edge": 448}}},
    ),
    _case(
        "Moondream3ForCausalLM",
        "moondream3",
        "Moondream3ProcessingInfo",
        {"model_type": "moondream3"},
        "most",
        kinds=("image",),
    ),
    _case(
        "DeepseekOCR2ForCausalLM",
        "deepseek_ocr2",
        "DeepseekOCR2ProcessingInfo",
        {"model_type": "deepseek_vl_v2"},
        "tiles",
        kinds=("image",),
    ),
]
