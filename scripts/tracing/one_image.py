"""What DeepSeek-OCR's encoder takes, which runs an image at a time: the figures of `Encoder.item_bytes`.

    .venv-vllm/bin/python -m scripts.tracing.one_image

Its towers (SAM-B and CLIP-L) have one size whatever the config says. Prints, for one, two and four
images, the most bytes alive and those that stay, without the whole images themselves.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from scripts.tracing.live_set import print_peaks
from scripts.tracing.stage import built, cpu_device, on_cpu, set_stage
from scripts.tracing.towers import text

WIDTH = 1280
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekOCRForCausalLM"],
    "model_type": "deepseek_vl_v2",
    "tile_tag": "2D",
    "global_view_pos": "head",
    "language_config": {
        **text(WIDTH),
        "architectures": ["DeepseekV2ForCausalLM"],
        **dict.fromkeys(("n_shared_experts", "num_experts_per_tok", "first_k_dense_replace"), 1),
        **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 0),
        **dict.fromkeys(("kv_lora_rank", "q_lora_rank")),
        "moe_intermediate_size": 896,
        "n_routed_experts": 4,
        "topk_method": "greedy",
        "use_mla": False,
    },
    "projector_config": {"input_dim": 2048, "n_embed": WIDTH, "projector_type": "linear"},
    "vision_config": {"image_size": 1024, "model_name": "deeplip_b_l", "mlp_ratio": 3.7362},
}


def main() -> int:
    live = set_stage()
    import torch
    from vllm.config import set_current_vllm_config

    where: Any = importlib.import_module("vllm.model_executor.models.deepseek_ocr")
    where.cached_tokenizer_from_config = lambda *args, **named: SimpleNamespace(vocab={"<image>": 7})
    config, model = built(CONFIG)
    on_cpu(model)

    def inputs(images: int) -> Any:
        return {
            "pixel_values": torch.ones(images, 3, 1024, 1024, dtype=torch.bfloat16),
            "images_crop": torch.ones(4 * images, 3, 640, 640, dtype=torch.bfloat16),
            "images_spatial_crop": torch.tensor([[2, 2]] * images),
        }

    def run(given: Any) -> Any:
        return model.embed_multimodal(**given)

    print_peaks(
        live, model, inputs, run, lambda: set_current_vllm_config(config, check_compile=False), cpu_device
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
