"""How TensorRT-LLM's server is called: NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/commands/serve.py.

Dynamo's wrapper has two options under other names: ai-dynamo/dynamo recipes/deepseek-r1/trtllm/agg/b200.
"""

from __future__ import annotations

from kvplan.engines.launch import Server

SERVER = Server(
    "trtllm",
    starts=(("trtllm-serve", "serve"), ("trtllm-serve",), ("-m", "dynamo.trtllm")),
    model=("--model",),
    images=("tensorrt-llm", "tensorrtllm"),
    renamed=(("--model-path", "--model"), ("--extra-engine-args", "--config")),
    tagged=("tensorrt-llm/release",),
    positional=True,
    options_file="--config",
    variables=("TRTLLM_", "TLLM_"),
)
