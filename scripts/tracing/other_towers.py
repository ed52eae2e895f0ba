"""Other encoders that are run: EVA-CLIP of GLM-4V, packed patches of Phi-4's vision, conformers of sound."""

from __future__ import annotations

from typing import Any

from scripts.tracing.towers import Tower, Widths, text


def _glm4v(at: Widths) -> dict[str, Any]:
    """THUDM/glm-4v-9b, of one layer and four of the tower, at 448 × 448 pixels."""
    return {
        "architectures": ["GLM4VForCausalLM"],
        "model_type": "chatglm",
        "hidden_size": at.out,
        "ffn_hidden_size": 13696 * at.out // 4096,
        "num_layers": 1,
        "num_attention_heads": 32,
        "kv_channels": 128,
        "multi_query_attention": True,
        "multi_query_group_num": 8,
        "padded_vocab_size": 256,
        "vocab_size": 256,
        "seq_length": 8192,
        "layernorm_epsilon": 1e-5,
        "rmsnorm": True,
        "add_qkv_bias": True,
        "add_bias_linear": False,
        "post_layer_norm": True,
        "original_rope": True,
        "tie_word_embeddings": False,
        "vision_config": {
            "dropout_prob": 0.0,
            "hidden_act": "gelu",
            "in_channels": 3,
            "num_hidden_layers": 4,
            "hidden_size": at.hidden,
            "patch_size": 14,
            "num_heads": at.heads,
            "intermediate_size": at.mlp,
            "layer_norm_eps": 1e-6,
            "num_positions": 32 * 32 + 1,
            "image_size": 448,
            "scaling_factor": 8,
        },
    }


def _glm4v_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    images = height * width // 1024
    return {"pixel_values": torch.zeros(images, 3, 448, 448, dtype=torch.bfloat16)}, images * 1024


def _phi4_siglip(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["Phi4ForCausalLMV"],
        "model_type": "phi4-siglip",
        **text(at.out),
        "mm_hidden_size": at.hidden,
        "max_num_patches": 3600,
        "min_num_patches": 256,
        "vision_config": {
            "model_type": "siglip2_vision_model",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 4,
            "num_attention_heads": at.heads,
            "num_channels": 3,
            "num_patches": 256,
            "patch_size": 16,
            "vision_use_head": False,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
            "attention_dropout": 0.0,
        },
    }


def _phi4_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    patches = height * width
    return {
        "pixel_values": torch.zeros(1, patches, 768, dtype=torch.bfloat16),
        "pixel_attention_mask": torch.ones(1, patches, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[height, width]]),
    }, patches


def _granite_speech(at: Widths) -> dict[str, Any]:
    return {
        "architectures": ["GraniteSpeechForConditionalGeneration"],
        "model_type": "granite_speech",
        "audio_token_index": 7,
        "downsample_rate": 5,
        "window_size": 15,
        "has_lora_adapter": False,
        "text_config": text(at.out, "granite"),
        "encoder_config": {
            "model_type": "granite_speech_encoder",
            "context_size": 200,
            "conv_expansion_factor": 2,
            "conv_kernel_size": 15,
            "dim_head": at.head,
            "dropout": 0.1,
            "feedforward_mult": at.mlp // at.hidden,
            "hidden_dim": at.hidden,
            "input_dim": 160,
            "max_pos_emb": 512,
            "num_heads": at.heads,
            "num_layers": 4,
            "output_dim": 256,
        },
        "projector_config": {
            "model_type": "blip_2_qformer",
            "hidden_size": at.hidden,
            "encoder_hidden_size": at.hidden,
            "intermediate_size": 4 * at.hidden,
            "num_attention_heads": at.heads * at.head // 64,
            "num_hidden_layers": 2,
            "cross_attention_frequency": 1,
            "max_position_embeddings": 2048,
            "use_qformer_text_input": False,
        },
    }


def _granite_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Positions of two columns of a spectrogram: one sound, whole blocks of 200."""
    positions = 3000 * (height * width // 1024)
    return {
        "input_features": torch.zeros(1, positions, 160, dtype=torch.bfloat16),
        "audio_embed_sizes": torch.tensor([positions // 5]),
    }, positions


OTHER = (
    Tower(("GLM4VForCausalLM",), _glm4v, _glm4v_inputs, Widths(16, 112, 15360, 4096)),
    Tower(("Phi4ForCausalLMV",), _phi4_siglip, _phi4_inputs, Widths(16, 72, 4304, 5120), opened=True),
    Tower(
        ("GraniteSpeechForConditionalGeneration",),
        _granite_speech,
        _granite_inputs,
        Widths(8, 128, 4096, 4096),
        tied=True,
    ),
)
