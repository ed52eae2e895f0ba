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
    EngineOption(
        "max_cudagraph_capture_size", "count", "Tokens of the largest CUDA graph (default: up to 512)."
    ),
    EngineOption(
        "compile_cache",
        "word",
        "Whether the compiled code of an earlier start is at hand (default: the pool's interval has both).",
        default="unknown",
        choices=("cold", "warm", "unknown"),
        served=False,
    ),
    EngineOption(
        "model_runner",
        "word",
        "The model runner, where VLLM_USE_V2_MODEL_RUNNER is set (default: the release's).",
        default="auto",
        choices=("auto", "v1", "v2"),
        served=False,
    ),
)
