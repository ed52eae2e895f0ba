"""More encoders that are run: those whose inputs are tiles of one size, and those of sound."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from scripts.tracing.towers import Tower, Widths, grid, text


def _siglip(at: Widths, size: int = 224, patch: int = 14, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "siglip_vision_model",
        "hidden_size": at.hidden,
        "intermediate_size": at.mlp,
        "num_hidden_layers": 3,
        "num_attention_heads": at.heads,
        "image_size": size,
        "patch_size": patch,
        "vision_use_head": False,
        **more,
    }


def _clip(at: Widths) -> dict[str, Any]:
    return {
        "model_type": "clip_vision_model",
        "hidden_size": at.hidden,
        "intermediate_size": at.mlp,
        "num_attention_heads": at.heads,
        "num_hidden_layers": 4,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 768,
        "vocab_size": 32000,
    }


def _tiles(size: int, patch: int, count: str = "num_patches", key: str = "pixel_values", **more: Any) -> Any:
    """Tiles of one size, all of one image."""

    def inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
        each = (size // patch) ** 2
        tiles = max(1, height * width // each)
        pixels = torch.ones(tiles, 3, size, size, dtype=torch.bfloat16)
        said = {name: value(torch, tiles) if callable(value) else value for name, value in more.items()}
        return {key: pixels, count: torch.tensor([tiles]), **said}, tiles * each

    return inputs


def _internvl_chat(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "downsample_ratio": 0.5,
        "ps_version": "v2",
        "select_layer": -1,
        "dynamic_image_size": True,
        "force_image_size": 448,
        "use_thumbnail": True,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "llm_config": {**text(at.out, "llama"), "architectures": ["LlamaForCausalLM"]},
        "vision_config": {
            "model_type": "intern_vit_6b",
            "architectures": ["InternVisionModel"],
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "num_channels": 3,
            "image_size": 448,
            "patch_size": 14,
            "qkv_bias": True,
            "qk_normalization": False,
            "norm_type": "layer_norm",
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-6,
            "initializer_factor": 1.0,
        },
    }


def _step3(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Step3VLForConditionalGeneration"],
        "model_type": "step3_vl",
        "understand_projector_stride": 2,
        "projector_bias": False,
        "image_token_id": 7,
        "hidden_size": at.out,
        "text_config": {"hidden_size": at.out, "num_hidden_layers": 1, "vocab_size": 256},
        "vision_config": {
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "output_hidden_size": 4096,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 728,
            "patch_size": 14,
        },
    }


def _step3_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """One whole image for each, and no crops."""
    images = 1 if height == width else 2
    pixels = torch.zeros(images, 3, 728, 728, dtype=torch.bfloat16)
    crops = torch.zeros(0, 3, 504, 504, dtype=torch.bfloat16)
    none = torch.zeros(images, dtype=torch.int64)
    return {"pixel_values": pixels, "patch_pixel_values": crops, "num_patches": none}, images * 52 * 52


def _step37(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Step3p7ForConditionalGeneration"],
        "model_type": "step3p7",
        "projector_bias": False,
        "image_token_id": 7,
        "text_config": {
            **text(at.out, "step3p5"),
            "num_attention_groups": 8,
            "layer_types": ["full_attention"],
            "moe_num_experts": 4,
            "moe_top_k": 1,
            "moe_intermediate_size": 256,
            "share_expert_dim": 256,
        },
        "vision_config": {
            "width": at.hidden,
            "mlp_ratio": at.mlp / at.hidden,
            "layers": 3,
            "heads": at.heads,
            "output_dim": None,
            "image_size": 728,
            "patch_size": 14,
            "use_abs_posemb": True,
            "use_cls_token": False,
            "use_rope2d": True,
            "use_ln_pre": True,
            "use_ln_post": False,
            "ls_init_value": 0.1,
            "hidden_act": "quick_gelu",
        },
    }


def _muse_glimmer(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["MuseGlimmerForConditionalGeneration"],
        "model_type": "muse_glimmer",
        "text_config": text(at.out, "muse_glimmer_text"),
        "vision_config": {
            "model_type": "muse_glimmer_vision",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 4,
            "num_attention_heads": at.heads,
            "output_dim": 4 * at.hidden,
        },
    }


def _muse_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    pixels = torch.zeros(1, 3, height * 14, width * 14, dtype=torch.bfloat16)
    return {"image_pixel_values": pixels, "image_feature_sizes": torch.tensor([height * width // 4])}, (
        height * width
    )


def _ernie(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "model_type": "ernie4_5_moe_vl",
        **text(at.out),
        "pixel_hidden_size": at.hidden,
        "spatial_conv_size": 2,
        "temporal_conv_size": 2,
        "im_patch_id": 7,
        "use_temporal_conv": True,
        "tie_word_embeddings": True,
        "moe_num_experts": [4, 4],
        "moe_intermediate_size": [256, 256],
        "moe_k": 1,
        "moe_layer_start_index": [0, 0],
        "moe_layer_end_index": [1, 1],
        "moe_layer_interval": 1,
        "moe_num_shared_experts": 0,
        "use_bias": False,
        "vision_config": {
            "depth": 3,
            "embed_dim": at.hidden,
            "hidden_size": at.hidden,
            "in_channels": 3,
            "num_heads": at.heads,
            "mlp_ratio": at.mlp // at.hidden,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    }


def _phi3v(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Phi3VForCausalLM"],
        "model_type": "phi3_v",
        **text(at.out),
        "img_processor": {"image_dim_out": 1024, "num_img_tokens": 144, "name": "clip_vision_model"},
        "embd_layer": {
            "use_hd_transform": True,
            "with_learnable_separator": True,
            "hd_transform_order": "sub_glb",
        },
    }


def _cohere2(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Cohere2VisionForConditionalGeneration"],
        "model_type": "cohere2_vision",
        "downsample_factor": 2,
        "alignment_intermediate_size": 4 * at.out,
        "text_config": text(at.out, "cohere2"),
        "vision_config": _siglip(at, 512, 16),
    }


def _idefics3(name: str, kind: str) -> Callable[[Widths], dict[str, Any]]:
    def config(at: Widths) -> dict[str, Any]:
        vision = _siglip(at, 512, 16) | {"model_type": f"{kind}_vision"}
        return {
            "architectures": [name],
            "model_type": kind,
            "scale_factor": 4,
            "image_token_id": 7,
            "text_config": text(at.out, "llama"),
            "vision_config": vision,
        }

    return config


def _dots_ocr(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["DotsOCRForCausalLM"],
        "model_type": "dots_ocr",
        **text(at.out),
        "vision_config": {
            "embed_dim": at.hidden,
            "hidden_size": at.out,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "num_channels": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
            "rms_norm_eps": 1e-5,
            "use_bias": False,
            "post_norm": True,
            "is_causal": False,
        },
    }


def _pixtral(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["PixtralForConditionalGeneration"],
        "model_type": "mistral_native",
        "text_config": {**text(at.out), "model_type": "mistral"},
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "num_channels": 3,
            "image_size": 1024,
            "patch_size": 16,
            "rope_theta": 10000.0,
            "image_token_id": 10,
            "adapter_bias": False,
            "add_pre_mm_projector_layer_norm": False,
            "mm_projector_id": "",
            "spatial_merge_size": 1,
            "max_image_size": 1024,
        },
    }


def _pixtral_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    return {"images": [torch.zeros(3, height * 16, width * 16, dtype=torch.bfloat16)]}, height * width


def _whisper(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "d_model": at.hidden,
        "encoder_attention_heads": at.heads,
        "decoder_attention_heads": at.heads,
        "encoder_ffn_dim": at.mlp,
        "decoder_ffn_dim": at.mlp,
        "encoder_layers": 3,
        "decoder_layers": 1,
        "num_mel_bins": 128,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "vocab_size": 256,
        "num_hidden_layers": 1,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "decoder_start_token_id": 1,
    }


def _mel(key: str, bins: int, mask: str = "") -> Any:
    """Half minutes of sound: 3,000 columns of a spectrogram, 1,500 positions of the encoder."""

    def inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
        items = 2 * max(1, height * width // 1024)
        heard = {key: torch.zeros(items, bins, 3000, dtype=torch.bfloat16)}
        if mask:
            heard[mask] = torch.ones(items, 3000, dtype=torch.int64)
        return heard, items * 1500

    return inputs


def _qwen2_audio(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2AudioForConditionalGeneration"],
        "model_type": "qwen2_audio",
        "text_config": text(at.out, "qwen2"),
        "audio_config": {
            "model_type": "qwen2_audio_encoder",
            "d_model": at.hidden,
            "encoder_attention_heads": at.heads,
            "encoder_ffn_dim": at.mlp,
            "encoder_layers": 3,
            "num_mel_bins": 128,
            "max_source_positions": 1500,
        },
    }


def _mimo(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["MiMoV2OmniForCausalLM"],
        "model_type": "mimo_v2",
        **text(at.out),
        "vision_config": {
            "depth": 4,
            "fullatt_block_indexes": [0, 3],
            "vit_window_attn_types": [-1, 0, 1, -1],
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_heads": at.heads,
            "num_key_value_heads": at.heads,
            "qk_channels": 64,
            "kv_channels": 64,
            "num_query_groups": at.heads,
            "in_channels": 3,
            "out_hidden_size": at.out,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
            "use_sink": True,
            "visual_token_window_size": 64,
            "hidden_act": "silu",
        },
    }


def _glm5_next(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": {**text(at.out, "glm5_next_text"), "layer_types": ["full_attention"]},
        "vision_config": {
            "depth": 3,
            "hidden_size": at.hidden,
            "num_heads": at.heads,
            "intermediate_size": at.mlp,
            "out_hidden_size": 1536,
            "projection_intermediate_size": 10240,
            "patch_size": 14,
            "image_size": 336,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_channels": 3,
        },
    }


def _molmo2(at: Widths) -> dict[str, Any]:
    """All layers: the output of each is kept until the last has run."""
    return {
        "architectures": ["Molmo2ForConditionalGeneration"],
        "model_type": "molmo2",
        "image_patch_id": 7,
        **dict.fromkeys(
            ("frame_end_token_id", "frame_start_token_id", "image_col_id", "image_end_token_id"), 8
        ),
        **dict.fromkeys(("image_low_res_id", "image_start_token_id", "low_res_image_start_token_id"), 9),
        "adapter_config": {
            "vit_layers": [-3, -9],
            "hidden_size": at.hidden,
            "num_attention_heads": at.heads,
            "num_key_value_heads": at.heads,
            "head_dim": at.head,
            "intermediate_size": 4 * at.out,
            "text_hidden_size": at.out,
            "pooling_attention_mask": True,
            "hidden_act": "silu",
        },
        "text_config": {
            **text(at.out, "molmo2_text"),
            "additional_vocab_size": 128,
            "layer_norm_eps": 1e-6,
            "qkv_bias": False,
            "use_qk_norm": True,
            "qk_norm_type": "qwen3",
            "hidden_act": "silu",
            "norm_after": False,
            "rope_theta": 5e6,
            "rope_scaling_layers": None,
        },
        "vit_config": {
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 27,
            "num_attention_heads": at.heads,
            "num_key_value_heads": at.heads,
            "head_dim": at.head,
            "image_default_input_size": [378, 378],
            "image_patch_size": 14,
            "image_num_pos": 729,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
        },
    }


def _molmo2_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Frames of 27 × 27 patches, nine to a token."""
    frames = max(1, height * width // 512)
    tokens = frames * 81
    return {
        "pixel_values_videos": torch.zeros(frames, 729, 588, dtype=torch.bfloat16),
        "video_token_pooling": torch.zeros(tokens, 9, dtype=torch.int64),
        "video_num_pooled_patches": torch.tensor([tokens]),
        "video_num_patches": torch.tensor([frames * 729]),
        "video_tokens": torch.full((tokens,), 7),
        "num_video_tokens": torch.tensor([tokens]),
    }, frames * 729


def _ovis25(at: Widths) -> dict[str, Any]:
    """Each token's probabilities over a vocabulary of 65,536; its processor, with a tokenizer, left out."""
    module = importlib.import_module("vllm.model_executor.models.ovis2_5")
    info = module.Ovis2_5ProcessingInfo
    info.__init__ = info.__mro__[1].__init__
    return {
        "architectures": ["Ovis2_5"],
        "model_type": "ovis2_5",
        "visual_vocab_size": 65536,
        "hidden_size": at.out,
        "llm_config": text(at.out, "qwen3"),
        "vit_config": {
            "model_type": "siglip2_navit",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 512,
            "patch_size": 16,
            "num_channels": 3,
            "num_patches": -1,
            "hidden_stride": 2,
            "window_size": 112,
            "temporal_patch_size": 1,
            "preserve_original_pe": True,
            "use_rope": True,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
            "attention_dropout": 0.0,
            "fullatt_block_indexes": None,
        },
    }


def _ovis_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    patches = height * width
    return {
        "pixel_values": [torch.zeros(patches, 768, dtype=torch.bfloat16)],
        "indicator_tokens": [torch.zeros(2, dtype=torch.int64)],
        "grids": [torch.tensor([[1, height, width]])],
    }, patches


MORE = (
    Tower(
        ("InternVLChatModel",),
        _internvl_chat,
        _tiles(
            448,
            14,
            "image_num_patches",
            "pixel_values_flat",
            image_token_id=lambda torch, tiles: torch.tensor(7),
        ),
        Widths(16, 64, 4096, 4096),
        opened=True,
    ),
    Tower(("Step3VLForConditionalGeneration",), _step3, _step3_inputs, Widths(16, 112, 15360, 7168)),
    Tower(
        ("Step3p7ForConditionalGeneration",),
        _step37,
        _step3_inputs,
        Widths(16, 96, 9216, 4096),
        tied=True,
        opened=True,
    ),
    Tower(("MuseGlimmerForConditionalGeneration",), _muse_glimmer, _muse_inputs, Widths(16, 96, 8960, 6656)),
    Tower(
        ("Ernie4_5_VLMoeForConditionalGeneration",),
        _ernie,
        grid(588),
        Widths(16, 80, 5120, 2560),
        step=1280,
        opened=True,
    ),
    Tower(("Cohere2VisionForConditionalGeneration",), _cohere2, _tiles(512, 16), Widths(16, 72, 4304, 4096)),
    Tower(
        ("Idefics3ForConditionalGeneration",),
        _idefics3("Idefics3ForConditionalGeneration", "idefics3"),
        _tiles(
            512, 16, pixel_attention_mask=lambda torch, tiles: torch.ones(tiles, 512, 512, dtype=torch.bool)
        ),
        Widths(12, 64, 3072, 2048),
    ),
    Tower(("DotsOCRForCausalLM",), _dots_ocr, grid(588), Widths(12, 128, 4224, 1536), opened=True),
    Tower(
        ("PixtralForConditionalGeneration",),
        _pixtral,
        _pixtral_inputs,
        Widths(16, 64, 4096, 5120),
        opened=True,
    ),
    Tower(
        ("WhisperForConditionalGeneration",),
        _whisper,
        _mel("input_features", 128),
        Widths(20, 64, 5120, 1280),
    ),
    Tower(
        ("Qwen2AudioForConditionalGeneration",),
        _qwen2_audio,
        _mel("input_features", 128, "feature_attention_mask"),
        Widths(20, 64, 5120, 4096),
    ),
    Tower(
        ("MiMoV2OmniForCausalLM", "MiMoV2ForCausalLM"),
        _mimo,
        grid(1536),
        Widths(20, 64, 4608, 4096),
        opened=True,
        beside="vllm.model_executor.models.mimo_v2_omni.MiMoV2FlashForCausalLM",
    ),
    Tower(("Glm5NextForConditionalGeneration",), _glm5_next, grid(1176), Widths(16, 64, 4096, 4096)),
    Tower(
        ("Molmo2ForConditionalGeneration",), _molmo2, _molmo2_inputs, Widths(16, 72, 4304, 4096), opened=True
    ),
    Tower(
        ("Ovis2_5", "Ovis2_6ForCausalLM", "Ovis2_6_MoeForCausalLM"),
        _ovis25,
        _ovis_inputs,
        Widths(16, 72, 4304, 4096),
        opened=True,
    ),
)
