"""Encoders with widths or tiles of the class's own: Molmo's CLIP of 23 layers, all of which are kept, timm's
SigLIP of DeepSeek-VL2 (which asks for timm 1.0.22 on the path: scripts/tracing/mobilenet.py), Keye's packed
patches."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from scripts.tracing.mobilenet import NoTorchvision
from scripts.tracing.towers import Tower, Widths, text


def _molmo(at: Widths) -> dict[str, Any]:
    """allenai/Molmo-7B-D-0924: its encoder's widths are the class's own (molmo.py, VisionBackboneConfig)."""
    module: Any = importlib.import_module("vllm.model_executor.models.molmo")
    kind: Any = module.VisionBackboneConfig
    module.VisionBackboneConfig = partial(
        getattr(kind, "func", kind),
        image_emb_dim=at.hidden,
        image_num_heads=at.heads,
        image_num_key_value_heads=at.heads,
        image_mlp_dim=at.mlp,
    )
    return {
        "architectures": ["MolmoForCausalLM"],
        "model_type": "molmo",
        **text(at.out),
        "intermediate_size": 10 * at.out,
        "embedding_size": 256,
        "weight_tying": False,
    }


def _molmo_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Crops of 24 × 24 patches; of the 144 tokens of each, those that overlap are left out."""
    crops = height * width // 512
    places = torch.arange(crops * 144).view(crops, 144)
    places[:, 103:] = -1
    return {
        "images": torch.zeros(crops, 576, 588, dtype=torch.bfloat16),
        "image_masks": torch.ones(crops, 576, dtype=torch.bfloat16),
        "image_input_idx": places,
        "num_crops": torch.tensor([crops]),
        "img_patch_id": torch.tensor(7),
    }, crops * 576


def _deepseek_vl2(at: Widths) -> dict[str, Any]:
    """deepseek-ai/deepseek-vl2: vit_so400m_patch14_siglip_384 of three layers, patches joined by 2 × 2."""
    if not any(isinstance(finder, NoTorchvision) for finder in sys.meta_path):
        sys.meta_path.append(NoTorchvision())
    timm: Any = importlib.import_module("timm")
    made: Any = timm.create_model
    ratio = (at.mlp + 0.5) / at.hidden
    widths = {"embed_dim": at.hidden, "num_heads": at.heads, "mlp_ratio": ratio, "depth": 3}
    timm.create_model = partial(getattr(made, "func", made), **widths)
    where: Any = importlib.import_module("vllm.model_executor.models.deepseek_vl2")
    where.cached_tokenizer_from_config = lambda *args, **named: SimpleNamespace(vocab={"<image>": 7})
    return {
        "architectures": ["DeepseekVLV2ForCausalLM"],
        "model_type": "deepseek_vl_v2",
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[384, 384], [384, 1152]],
        "language_config": {
            **text(at.out),
            "architectures": ["DeepseekV2ForCausalLM"],
            **dict.fromkeys(("n_shared_experts", "num_experts_per_tok", "first_k_dense_replace"), 1),
            **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 64),
            "kv_lora_rank": 512,
            "q_lora_rank": None,
            "moe_intermediate_size": 896,
            "n_routed_experts": 4,
            "topk_method": "greedy",
        },
        "projector_config": {
            "input_dim": at.hidden,
            "n_embed": at.out,
            "depth": 2,
            "downsample_ratio": 2,
            "mlp_ratio": 1,
            "projector_type": "downsample_mlp_gelu",
        },
        "vision_config": {"image_size": 384, "layers": 3, "mlp_ratio": 3.7362},
    }


def _deepseek_vl2_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Images of three tiles and the whole, filled up to 28 × 28 patches each (dynamic_img_pad)."""
    images = max(1, height * width // 1024)
    return {
        "pixel_values": torch.zeros(4 * images, 3, 384, 384, dtype=torch.bfloat16),
        "images_spatial_crop": torch.tensor([[1, 3]] * images),
    }, 4 * images * 784


def _keye(architecture: str, kind: str) -> Any:
    def config(at: Widths) -> dict[str, Any]:
        return {
            "architectures": [architecture],
            "model_type": kind,
            **text(at.out),
            "rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]},
            "vision_config": {
                "model_type": f"{kind}_vision",
                "hidden_size": at.hidden,
                "intermediate_size": at.mlp,
                "num_hidden_layers": 3,
                "num_attention_heads": at.heads,
                "num_channels": 3,
                "image_size": 384,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "hidden_act": "gelu_pytorch_tanh",
                "layer_norm_eps": 1e-6,
                "attention_dropout": 0.0,
            },
        }

    return config


def _keye_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    patches = height * width
    return {
        "pixel_values": torch.zeros(patches, 3, 14, 14, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]]),
    }, patches


def _ovis(at: Widths) -> dict[str, Any]:
    """AIDC-AI/Ovis2-8B: AIMv2, and each token's probabilities over a vocabulary of 65,536."""
    return {
        "architectures": ["Ovis"],
        "model_type": "ovis",
        "hidden_size": at.out,
        "llm_config": text(at.out, "qwen2"),
        "visual_tokenizer_config": {
            "model_type": "aimv2_visual_tokenizer",
            "hidden_stride": 2,
            "vocab_size": 65536,
            "tokenize_function": "softmax",
            "backbone_config": {
                "model_type": "aimv2",
                "hidden_size": at.hidden,
                "intermediate_size": at.mlp,
                "num_hidden_layers": 3,
                "num_attention_heads": at.heads,
                "num_channels": 3,
                "image_size": 448,
                "patch_size": 14,
                "qkv_bias": False,
                "use_bias": False,
                "rms_norm_eps": 1e-5,
            },
        },
    }


def _ovis_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Images of one tile and the whole."""
    images = max(1, height * width // 1024)
    return {
        "pixel_values": torch.zeros(images, 2, 3, 448, 448, dtype=torch.bfloat16),
        "indicator_tokens": torch.full((images, 3), 65532),
    }, 2 * images * 1024


def _aria(at: Widths) -> dict[str, Any]:
    """rhymes-ai/Aria, of one layer and three of the tower."""
    return {
        "architectures": ["AriaForConditionalGeneration"],
        "model_type": "aria",
        "projector_patch_to_query_dict": {"1225": 128, "4900": 256},
        "text_config": {
            **text(at.out, "aria_text"),
            "moe_num_experts": 4,
            "moe_topk": 1,
            "moe_num_shared_experts": 1,
        },
        "vision_config": {
            "model_type": "idefics3_vision",
            "hidden_size": at.hidden,
            "intermediate_size": at.mlp,
            "num_hidden_layers": 3,
            "num_attention_heads": at.heads,
            "image_size": 980,
            "patch_size": 14,
        },
    }


def _aria_inputs(torch: Any, height: int, width: int) -> tuple[dict[str, Any], int]:
    """Images of 980 × 980 pixels."""
    images = max(1, height * width // 1024)
    return {
        "pixel_values": torch.zeros(images, 3, 980, 980, dtype=torch.bfloat16),
        "pixel_mask": torch.ones(images, 980, 980, dtype=torch.bool),
    }, images * 4900


LATE = (
    Tower(
        ("MolmoForCausalLM",),
        _molmo,
        _molmo_inputs,
        Widths(16, 64, 4096, 4096),
        opened=True,
        beside="vllm.model_executor.models.molmo.MolmoModel",
    ),
    Tower(("DeepseekVLV2ForCausalLM",), _deepseek_vl2, _deepseek_vl2_inputs, Widths(16, 72, 4304, 2048)),
    Tower(
        ("KeyeForConditionalGeneration",),
        _keye("KeyeForConditionalGeneration", "Keye"),
        _keye_inputs,
        Widths(16, 72, 4304, 4096),
        opened=True,
    ),
    Tower(
        ("KeyeVL1_5ForConditionalGeneration",),
        _keye("KeyeVL1_5ForConditionalGeneration", "KeyeVL1_5"),
        _keye_inputs,
        Widths(16, 72, 4304, 4096),
        opened=True,
    ),
    Tower(("Ovis",), _ovis, _ovis_inputs, Widths(16, 128, 5632, 4096)),
    Tower(
        ("AriaForConditionalGeneration",),
        _aria,
        _aria_inputs,
        Widths(16, 72, 4304, 2048),
        beside="vllm.model_executor.models.aria.AriaTextModel",
    ),
)
