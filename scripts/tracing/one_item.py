"""What encoders take that run one item at a time: images of Moondream 3 and DeepSeek-OCR 2, sounds of
Phi-4-multimodal.

    .venv-vllm/bin/python -m scripts.tracing.one_item moondream|phi4mm|deepseek_ocr2

The figures of `Encoder.item_bytes`, whose widths are the same in every checkpoint. Prints, for one, two and
four items, the most bytes alive and those that stay, with the items themselves.
"""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

from scripts.tracing.live_set import print_peaks
from scripts.tracing.one_image import CONFIG
from scripts.tracing.stage import built, cpu_device, left_out, on_cpu, open_config, set_stage

_MOONDREAM = {"architectures": ["Moondream3ForCausalLM"], "model_type": "moondream3", "config": {}}
_FRAMES, _MELS = 1504, 80
_CONFORMER: dict[str, Any] = {
    "activation": "swish",
    "activation_checkpointing": {"interval": 1, "module": "transformer", "offload": False},
    "attention_dim": 1024,
    "attention_heads": 16,
    "batch_norm": False,
    "bias_in_glu": True,
    "causal": True,
    "chunk_size": -1,
    "cnn_layer_norm": True,
    "conv_activation": "swish",
    "conv_glu_type": "swish",
    "depthwise_multiplier": 1,
    "depthwise_seperable_out_channel": 1024,
    "dropout_rate": 0.0,
    "encoder_embedding_config": {"input_size": _MELS},
    "ext_pw_kernel_size": 1,
    "ext_pw_out_channel": 1024,
    "input_layer": "nemo_conv",
    "input_size": _MELS,
    "kernel_size": 3,
    "left_chunk": 18,
    "linear_units": 1536,
    "nemo_conv_settings": {"conv_channels": 1024},
    "num_blocks": 3,
    "relative_attention_bias_args": {"t5_bias_max_distance": 500, "type": "t5"},
    "time_reduction": 8,
}
"""audio_processor.config of microsoft/Phi-4-multimodal-instruct config.json, with 3 of its 24 blocks."""
_LAYER = {
    "compression_rate": 8,
    "downsample_rate": 1,
    "projection_cls": "mlp",
    "use_conv_downsample": False,
    "use_qformer": False,
}


def _moondream(live: Any) -> None:
    """378 × 378 pixels: the whole image and one crop."""
    import torch
    from vllm.config import set_current_vllm_config

    open_config("moondream3")
    left_out("vllm.model_executor.models.moondream3.Moondream3TextModel")
    config, model = built(_MOONDREAM)
    on_cpu(model)
    model.text.embed_input_ids = lambda ids: torch.zeros(len(ids), 2048, dtype=torch.bfloat16)

    def inputs(images: int) -> Any:
        pixels = torch.ones(images, 2, 3, 378, 378, dtype=torch.bfloat16)
        return {"pixel_values": pixels, "tilings": torch.tensor([[1, 1]] * images)}

    def run(given: Any) -> Any:
        return model.embed_multimodal(**given)

    print_peaks(
        live, model, inputs, run, lambda: set_current_vllm_config(config, check_compile=False), cpu_device
    )


def _deepseek_ocr2(live: Any) -> None:
    """1,536 × 1,536 pixels: the whole image at 1,024 × 1,024 and four crops of 768 × 768."""
    import torch
    from vllm.config import set_current_vllm_config

    where: Any = importlib.import_module("vllm.model_executor.models.deepseek_ocr2")
    where.cached_tokenizer_from_config = lambda *args, **named: SimpleNamespace(vocab={"<image>": 7})
    projector = {**CONFIG["projector_config"], "input_dim": 896}
    name = "DeepseekOCR2ForCausalLM"
    config, model = built({**CONFIG, "architectures": [name], "projector_config": projector})
    on_cpu(model)

    def inputs(images: int) -> Any:
        return {
            "pixel_values": torch.ones(images, 3, 1024, 1024, dtype=torch.bfloat16),
            "images_crop": torch.ones(4 * images, 3, 768, 768, dtype=torch.bfloat16),
            "images_spatial_crop": torch.tensor([[2, 2]] * images),
        }

    def run(given: Any) -> Any:
        return model.embed_multimodal(**given)

    print_peaks(
        live, model, inputs, run, lambda: set_current_vllm_config(config, check_compile=False), cpu_device
    )


def _phi4mm(live: Any) -> None:
    """241,000 samples: 1,504 columns of a spectrogram."""
    import torch

    where: Any = importlib.import_module("vllm.model_executor.models.phi4mm_audio")
    config = SimpleNamespace(
        hidden_size=3072, vocab_size=256, audio_processor={"name": "cascades", "config": _CONFORMER}
    )
    model = where.AudioEmbedding(config, **_LAYER).to(torch.bfloat16).eval()

    def inputs(sounds: int) -> Any:
        return [torch.zeros(_FRAMES, _MELS, dtype=torch.bfloat16) for _ in range(sounds)]

    def run(given: Any) -> Any:
        return [model(features) for features in given]

    print_peaks(live, model, inputs, run, cpu_device)


def main() -> int:
    live = set_stage()
    {"moondream": _moondream, "phi4mm": _phi4mm, "deepseek_ocr2": _deepseek_ocr2}[sys.argv[1]](live)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
