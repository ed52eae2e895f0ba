"""The arguments of mlx_lm.server: ml-explore/mlx-lm 0.32.2 mlx_lm/server.py."""

from __future__ import annotations

from kvplan.engines.command import Argument, Checkpoint, EngineTable


def _model(checkpoint: Checkpoint, path: str) -> list[str]:
    del checkpoint
    return ["--model", path]


_AS_PUBLISHED = ("bf16", "mxfp4")


def _build(checkpoint: Checkpoint, build: str) -> Checkpoint:
    """``mlx-community/Qwen3-8B-4bit``: how those who publish builds of a model call them; a checkpoint as it
    was published loads by itself."""
    if build in _AS_PUBLISHED:
        return checkpoint
    name, word = checkpoint.name.rpartition("/")[2], build.upper() if "mxfp4" in build else build
    return Checkpoint(f"mlx-community/{name}-{word}", False)


TABLE = EngineTable(
    "mlx",
    ("mlx_lm.server",),
    {
        "max_num_seqs": Argument("--decode-concurrency"),
        "max_num_batched_tokens": Argument("--prefill-step-size"),
        "prompt_concurrency": Argument("--prompt-concurrency"),
        "prompt_cache_size": Argument("--prompt-cache-size"),
        "prompt_cache_bytes": Argument("--prompt-cache-bytes"),
        "kv_bits": Argument("--kv-bits"),
        "kv_group_size": Argument("--kv-group-size"),
        "quantized_kv_start": Argument("--quantized-kv-start"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "trust_remote_code": Argument("--trust-remote-code"),
        "chat_template": Argument("--chat-template"),
    },
    {
        "max_kv_size": "mlx_lm.generate has it, and the server does not",
        "max_model_len": "a request may be as long as the memory holds",
        "kv_cache_memory": "its caches grow as they need; --prompt-cache-bytes bounds those that it keeps",
        "kv_cache_dtype": "the cache has the model's type, or the bits of --kv-bits",
        "dtype": "the checkpoint decides it: mlx_lm.convert --dtype",
        "quantization": "the checkpoint decides it: mlx_lm.convert -q",
        "tensor_parallel_size": "how it divides a model over several Macs is not known here",
        "pipeline_parallel_size": "how it divides a model over several Macs is not known here",
        "data_parallel_size": "start one server for each, with replicas",
        "gpu_memory_utilization": "it takes what macOS lets the GPU use: sysctl iogpu.wired_limit_mb",
        "enable_prefix_caching": "it always keeps prompts: --prompt-cache-size",
        "served_model_name": "the model is served under its own name",
        "revision": "name a local folder with that revision",
        "tool_call_parser": "the tokenizer decides it",
    },
    {},
    port=8080,
    model=_model,
    build=_build,
)
