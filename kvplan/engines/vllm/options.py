"""The options that vLLM alone has; read by the command line without loading the engine."""

from __future__ import annotations

from kvplan.engines.options import LORA, EngineOption

OPTIONS = (
    *LORA,
    EngineOption("max_loras", "count", "Adapters in one batch: slots on the GPU (default: 1)."),
    EngineOption(
        "lora_dtype",
        "word",
        "Dtype of the adapters (default: the model's).",
        choices=("auto", "float16", "bfloat16"),
    ),
    EngineOption(
        "fully_sharded_loras", "flag", "Both matrices of an adapter divided among the GPUs.", default=False
    ),
)
