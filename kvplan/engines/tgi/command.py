"""The arguments of TGI 3.3: huggingface/text-generation-inference launcher/src/main.rs (Args)."""

from __future__ import annotations

from kvplan.engines.command import Argument, Checkpoint, EngineTable, Image, longest, words


def _model(checkpoint: Checkpoint, path: str) -> list[str]:
    del checkpoint
    return ["--model-id", path]


TABLE = EngineTable(
    "tgi",
    ("text-generation-launcher",),
    {
        "tensor_parallel_size": Argument("--num-shard"),
        "max_model_len": Argument("--max-total-tokens", write=longest()),
        "max_num_seqs": Argument("--max-batch-size"),
        "max_num_batched_tokens": Argument("--max-batch-prefill-tokens"),
        "dtype": Argument("--dtype"),
        "quantization": Argument("--quantize"),
        "speculate": Argument("--speculate"),
        "kv_cache_dtype": Argument(
            "--kv-cache-dtype",
            words=words("fp8_e4m3fn", "fp8_e5m2", fp8="fp8_e4m3fn", fp8_e4m3="fp8_e4m3fn"),
        ),
        "cuda_memory_fraction": Argument("--cuda-memory-fraction"),
        "max_concurrent_requests": Argument("--max-concurrent-requests"),
    },
    {
        "host": Argument("--hostname"),
        "port": Argument("--port"),
        "trust_remote_code": Argument("--trust-remote-code"),
        "revision": Argument("--revision"),
    },
    {
        "tgi_attention": "it is the variable ATTENTION, not an argument",
        "pipeline_parallel_size": "it has no pipeline",
        "data_parallel_size": "start one server for each, with replicas",
        "kv_cache_memory": "its pool follows from cuda_memory_fraction",
        "gpu_memory_utilization": "it is called cuda_memory_fraction there and counts otherwise",
        "enable_prefix_caching": "it is the variable PREFIX_CACHING, not an argument",
        "served_model_name": "the model is served under its own name",
        "chat_template": "it is part of tokenizer_config_path",
        "tool_call_parser": "its router has one for all models",
        "kv_retention": "it keeps every token",
    },
    {"tensor_parallel_size": "num_shard"},
    port=3000,
    image=Image(
        "ghcr.io/huggingface/text-generation-inference",
        "{}",
        ("text-generation-launcher",),
        ("CMD", "curl", "-f", "http://127.0.0.1:{}/health"),
    ),  # docs/source/quicktour.md
    model=_model,
)
