"""The encoders that are run: a small config of each class, and the inputs of so many patches or tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


def text(width: int, kind: str | None = None, **more: Any) -> dict[str, Any]:
    """A language model of one layer, as wide as asked."""
    return {
        "hidden_size": width,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": width // 128,
        "num_key_value_heads": width // 128,
        "head_dim": 128,
        "vocab_size": 256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        **({"model_type": kind} if kind else {}),
        **more,
    }


class Widths(NamedTuple):
    """What is varied: the tower's heads and their size, its MLP, the language model's width, ranks."""

    heads: int
    head: int
    mlp: int
    out: int
    tp: int = 1

    @property
    def hidden(self) -> int:
        return self.heads * self.head


class Tower(NamedTuple):
    """One class: its config for given widths, its inputs for a grid of (height, width) patches or tiles, and
    the widths around which it is run. classes: all that have this tower. step: by how much its MLP may be
    widened; tied: it is always as many times the tower's width. opened: its model type's config class comes
    with the checkpoint. beside: the class of its language model, where vLLM names it and it is left out."""

    classes: tuple[str, ...]
    config: Callable[[Widths], dict[str, Any]]
    inputs: Callable[[Any, int, int], tuple[dict[str, Any], int]]
    around: Widths
    step: int = 64
    tied: bool = False
    opened: bool = False
    beside: str = ""


def grid(channels: int, name: str = "image_grid_thw", key: str = "pixel_values") -> Any:
    def inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
        count = height * width
        pixels = torch.zeros(count, channels, dtype=torch.bfloat16)
        return {key: pixels, name: torch.tensor([[1, height, width]])}, count

    return inputs


def _qwen2(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        **text(at.out),
        "rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]},
        "vision_config": {
            "depth": 3,
            "embed_dim": at.hidden,
            "hidden_size": at.out,
            "num_heads": at.heads,
            "mlp_ratio": at.mlp // at.hidden,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    }


def _qwen25(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        **text(at.out),
        "rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]},
        "vision_config": {
            "depth": 4,
            "fullatt_block_indexes": [1, 3],
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_heads": at.heads,
            "out_hidden_size": at.out,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
        },
    }


def _qwen3(architecture: str, kind: str, deep: tuple[int, ...]) -> Callable[[Widths], dict[str, Any]]:
    def config(at: Widths) -> dict[str, Any]:
        body = text(at.out)
        if kind == "qwen3_5":
            body |= {
                "layer_types": ["full_attention"],
                "linear_num_key_heads": 8,
                "linear_num_value_heads": 8,
                "model_type": "qwen3_5_text",
            }
        vision = {
            "depth": 5,
            "deepstack_visual_indexes": list(deep),
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_heads": at.heads,
            "num_position_embeddings": 2304,
            "out_hidden_size": at.out,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_channels": 3,
        }
        share = 4 if kind == "qwen3_5" else 1
        body["rope_scaling"] = {
            "rope_type": "default",
            "mrope_section": [side // share for side in (24, 20, 20)],
        }
        return {
            "architectures": [architecture],
            "model_type": kind,
            "text_config": body,
            "vision_config": vision,
        }

    return config


def _glm(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Glm4vForConditionalGeneration"],
        "model_type": "glm4v",
        "text_config": text(at.out, "glm4v_text"),
        "vision_config": {
            "depth": 3,
            "hidden_size": at.hidden,
            "num_heads": at.heads,
            "intermediate_size": at.mlp,
            "out_hidden_size": at.out,
            "patch_size": 14,
            "image_size": 336,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "hidden_act": "silu",
            "in_channels": 3,
            "rms_norm_eps": 1e-5,
        },
    }


def _gemma3(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "mm_tokens_per_image": 16,
        "text_config": text(at.out, "gemma3_text", sliding_window=512),
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 224,
            "patch_size": 14,
            "vision_use_head": False,
        },
    }


def _gemma3_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    tiles = max(1, height * width // 256)
    pixels = torch.zeros(tiles, 3, 224, 224, dtype=torch.bfloat16)
    return {"pixel_values": pixels, "num_patches": torch.ones(tiles, dtype=torch.int64)}, tiles * 256


def _gemma4(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "text_config": text(
            at.out,
            "gemma4_text",
            layer_types=["full_attention"],
            hidden_size_per_layer_input=0,
        ),
        "audio_config": None,
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "num_key_value_heads": at.heads,
            "head_dim": at.head,
            "global_head_dim": at.head,
            "patch_size": 16,
            "pooling_kernel_size": 3,
            "position_embedding_size": 10240,
            "default_output_length": 64,
            "standardize": True,
        },
    }


def _gemma4_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Frames of 144 patches, 16 soft tokens each: one video."""
    frames = max(1, height * width // 144)
    places = torch.stack([torch.arange(144) % 12, torch.arange(144) // 12], -1).repeat(frames, 1, 1)
    pixels = torch.zeros(frames, 144, 768, dtype=torch.bfloat16)
    return {
        "pixel_values_videos": pixels,
        "pixel_position_ids_videos": places,
        "video_frame_counts": torch.tensor([frames]),
    }, frames * 144


def _llama4(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "text_config": text(
            at.out,
            "llama4_text",
            intermediate_size_mlp=2048,
            num_local_experts=4,
            num_experts_per_tok=1,
        ),
        "vision_config": {
            "model_type": "llama4_vision_model",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 336,
            "patch_size": 14,
            "num_channels": 3,
            "pixel_shuffle_ratio": 0.5,
            "projector_input_dim": 4096,
            "projector_output_dim": 4096,
            "vision_output_dim": 4096,
            "vision_feature_select_strategy": "default",
            "hidden_act": "gelu",
            "norm_eps": 1e-5,
            "rope_theta": 10000,
        },
    }


def _llama4_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    tiles = max(1, height * width // 576)
    pixels = torch.zeros(tiles, 3, 336, 336, dtype=torch.bfloat16)
    one = torch.tensor([tiles])
    return {"pixel_values": pixels, "patches_per_image": one, "aspect_ratios": torch.tensor([[1, 1]])}, (
        tiles * 576
    )


def _mistral3(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": 2,
        "vision_feature_layer": -1,
        "text_config": text(at.out, "mistral"),
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": at.hidden,
            "head_dim": at.head,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 896,
            "patch_size": 14,
            "num_channels": 3,
            "hidden_act": "silu",
            "rope_theta": 10000.0,
        },
    }


def _mistral3_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    pixels = torch.zeros(1, 3, height * 14, width * 14, dtype=torch.bfloat16)
    return {"pixel_values": pixels}, height * width


def _kimi_k25(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text(
            at.out,
            "deepseek_v3",
            kv_lora_rank=512,
            q_lora_rank=None,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            n_routed_experts=4,
            num_experts_per_tok=1,
            moe_intermediate_size=512,
            first_k_dense_replace=1,
        ),
        "vision_config": {  # the names of transformers' class: it takes others and heeds none of them
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_attention_heads": at.heads,
            "num_hidden_layers": 3,
        },
    }


def _kimi_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    count = height * width
    pixels = torch.zeros(count, 3, 14, 14, dtype=torch.bfloat16)
    return {"pixel_values": pixels, "grid_thws": torch.tensor([[1, height, width]])}, count


def _kimi_k3(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "text_config": text(
            at.out,
            "kimi_linear",
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            mla_use_nope=True,
            linear_attn_config=None,
            num_experts=0,
        ),
        "vision_config": {
            "vt_hidden_size": at.hidden,
            "vt_intermediate_size": at.mlp,
            "vt_num_attention_heads": at.heads,
            "vt_num_hidden_layers": 3,
            "qkv_hidden_size": 3 * at.hidden // 2,
        },
    }


def _minimax_m3(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "text_config": text(at.out, num_local_experts=4, num_experts_per_tok=1),
        "vision_config": {
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_attention_heads": at.heads,
            "num_hidden_layers": 3,
            "num_channels": 3,
            "patch_size": 14,
            "layer_norm_eps": 1e-5,
            "hidden_act": "gelu",
            "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
        },
    }


def _kimi_vl(at: Widths) -> dict[str, Any]:
    base = _kimi_k25(at)
    return {
        "architectures": ["KimiVLForConditionalGeneration"],
        "model_type": "kimi_vl",
        "text_config": base["text_config"],
        "vision_config": {
            "model_type": "moonvit",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_attention_heads": at.heads,
            "num_hidden_layers": 3,
            "patch_size": 14,
            "init_pos_emb_height": 64,
            "init_pos_emb_width": 64,
            "merge_kernel_size": [2, 2],
        },
    }


def _kimi_vl_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    count = height * width
    pixels = torch.zeros(count, 3, 14, 14, dtype=torch.bfloat16)
    return {"pixel_values": pixels, "image_grid_hws": torch.tensor([[height, width]])}, count


def _llava(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": text(at.out, "llama"),
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_attention_heads": at.heads,
            "num_hidden_layers": 4,
            "image_size": 336,
            "patch_size": 14,
            "projection_dim": 768,
            "vocab_size": 32000,
        },
    }


def _llava_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    tiles = max(1, height * width // 576)
    return {"pixel_values": torch.zeros(tiles, 3, 336, 336, dtype=torch.bfloat16)}, tiles * 576


def _internvl(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "downsample_ratio": 0.5,
        "image_seq_length": 256,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "text_config": text(at.out, "qwen2"),
        "vision_config": {
            "model_type": "internvl_vision",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": [448, 448],
            "patch_size": [14, 14],
            "num_channels": 3,
        },
    }


def _internvl_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    tiles = max(1, height * width // 1024)
    pixels = torch.zeros(tiles, 3, 448, 448, dtype=torch.bfloat16)
    one = torch.tensor([tiles])
    return {"pixel_values": pixels, "image_num_patches": one, "image_token_id": torch.tensor(7)}, tiles * 1024


def _lfm2(at: Widths) -> dict[str, Any]:
    body = text(at.out, "lfm2", layer_types=["full_attention"], conv_L_cache=3, conv_bias=False)
    tied = {"block_dim": at.out, "conv_dim": at.out, "block_multiple_of": 256, "norm_eps": 1e-5}
    body |= {**tied, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0}
    return {
        "architectures": ["Lfm2VlForConditionalGeneration"],
        "model_type": "lfm2_vl",
        "downsample_factor": 2,
        "encoder_patch_size": 16,
        "projector_bias": True,
        "projector_hidden_act": "gelu",
        "projector_hidden_size": 2048,
        "projector_use_layernorm": False,
        "text_config": body,
        "vision_config": {
            "model_type": "siglip2_vision_model",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "num_channels": 3,
            "num_patches": 256,
            "patch_size": 16,
            "vision_use_head": False,
        },
    }


def _lfm2_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    tiles = max(1, height * width // 1024)
    pixels = torch.zeros(tiles, 1024, 768, dtype=torch.bfloat16)
    shapes = torch.tensor([[32, 32]] * tiles)
    return {
        "pixel_values": pixels,
        "spatial_shapes": shapes,
        "num_patches": torch.tensor([tiles]),
    }, tiles * 1024


TOWERS = (
    Tower(("Qwen2VLForConditionalGeneration",), _qwen2, grid(1176), Widths(16, 80, 5120, 4096), step=1280),
    Tower(("Qwen2_5_VLForConditionalGeneration",), _qwen25, grid(1176), Widths(16, 80, 3456, 4096)),
    Tower(
        ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        _qwen3("Qwen3VLForConditionalGeneration", "qwen3_vl", (0, 1, 2)),
        grid(1536),
        Widths(16, 72, 4304, 4096),
    ),
    Tower(
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        _qwen3("Qwen3_5ForConditionalGeneration", "qwen3_5", ()),
        grid(1536),
        Widths(16, 72, 4304, 5120),
    ),
    Tower(
        ("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"),
        _glm,
        grid(1176),
        Widths(12, 128, 10944, 4096),
    ),
    Tower(
        ("Gemma3ForConditionalGeneration",),
        _gemma3,
        _gemma3_inputs,
        Widths(16, 72, 4304, 3072),
    ),
    Tower(("Gemma4ForConditionalGeneration",), _gemma4, _gemma4_inputs, Widths(16, 72, 4304, 3072)),
    Tower(
        ("Llama4ForConditionalGeneration",), _llama4, _llama4_inputs, Widths(16, 88, 5632, 5120), tied=True
    ),
    Tower(("Mistral3ForConditionalGeneration",), _mistral3, _mistral3_inputs, Widths(16, 64, 4096, 5120)),
    Tower(("KimiK25ForConditionalGeneration",), _kimi_k25, _kimi_inputs, Widths(16, 72, 4304, 7168)),
    Tower(("KimiK3ForConditionalGeneration",), _kimi_k3, _kimi_inputs, Widths(12, 96, 4608, 7168)),
    Tower(("MiniMaxM3SparseForConditionalGeneration",), _minimax_m3, grid(1176), Widths(16, 80, 5120, 6144)),
    Tower(("KimiVLForConditionalGeneration",), _kimi_vl, _kimi_vl_inputs, Widths(16, 72, 4304, 2048)),
    Tower(
        ("InternVLForConditionalGeneration", "InternS1ForConditionalGeneration"),
        _internvl,
        _internvl_inputs,
        Widths(16, 64, 4096, 4096),
    ),
    Tower(("Lfm2VlForConditionalGeneration",), _lfm2, _lfm2_inputs, Widths(16, 72, 4304, 2048)),
    Tower(("LlavaForConditionalGeneration",), _llava, _llava_inputs, Widths(16, 64, 4096, 4096)),
)
