"""The arguments of TensorRT-LLM 1.2: tensorrt_llm/commands/serve.py and llmapi/llm_args.py.

Unknown keys are refused there (extra="forbid")."""

from __future__ import annotations

from typing import Any

from kvplan.engines.command import (
    PYTHON_PROBE,
    Argument,
    Asked,
    EngineTable,
    Image,
    drafting,
    experts,
    longest,
    words,
)
from kvplan.engines.retention import parsed
from kvplan.errors import KvplanError


def _speculation(value: Any, asked: Asked) -> object:
    tokens, draft = drafting("trtllm", value, asked, own=value == "mtp")
    if draft is not None:
        raise KvplanError(
            "no-such-argument", "kvplan does not know how trtllm is given a draft model", help="mtp"
        )
    return {"decoding_type": "MTP", "num_nextn_predict_layers": tokens}


def _window(value: Any, asked: Asked) -> object:
    kept = parsed(value)
    return () if kept is None else [kept.window]


_KV_WORDS = words("auto", "fp8", "nvfp4", fp8_e4m3="fp8")
_KV = "kv_cache_config"
TABLE = EngineTable(
    "trtllm",
    ("trtllm-serve",),
    {
        "tensor_parallel_size": Argument("--tp_size"),
        "pipeline_parallel_size": Argument("--pp_size"),
        "enable_expert_parallel": Argument("--ep_size", write=experts),
        "moe_expert_parallel_size": Argument("--ep_size"),
        "max_model_len": Argument("--max_seq_len", write=longest()),
        "max_num_seqs": Argument("--max_batch_size"),
        "max_num_batched_tokens": Argument("--max_num_tokens"),
        "dtype": Argument("dtype"),
        "enable_attention_dp": Argument("enable_attention_dp"),
        "kv_cache_dtype": Argument(f"{_KV}.dtype", words=_KV_WORDS),
        "mamba_ssm_cache_dtype": Argument(f"{_KV}.mamba_ssm_cache_dtype"),
        "block_size": Argument(f"{_KV}.tokens_per_block"),
        # The file's kv_cache_config replaces the one that --free_gpu_memory_fraction is put into.
        "free_gpu_memory_fraction": Argument(f"{_KV}.free_gpu_memory_fraction"),
        "kv_cache_memory": Argument(f"{_KV}.max_gpu_total_bytes"),
        "max_tokens": Argument(f"{_KV}.max_tokens"),
        # Before the option whose key it writes: a file that is read has that one.
        "kv_retention": Argument(f"{_KV}.max_attention_window", write=_window),
        "max_attention_window": Argument(f"{_KV}.max_attention_window"),
        "enable_prefix_caching": Argument(f"{_KV}.enable_block_reuse"),
        "enable_partial_reuse": Argument(f"{_KV}.enable_partial_reuse"),
        "capacity_scheduler_policy": Argument("scheduler_config.capacity_scheduler_policy"),
        "context_chunking_policy": Argument("scheduler_config.context_chunking_policy"),
        "enable_chunked_prefill": Argument("enable_chunked_prefill"),
        "disable_overlap_scheduler": Argument("disable_overlap_scheduler"),
        "use_kv_cache_manager_v2": Argument(f"{_KV}.use_kv_cache_manager_v2"),
        "max_util_for_resume": Argument(f"{_KV}.max_util_for_resume"),
        "enforce_eager": Argument("cuda_graph_config", write=lambda value, asked: None),
        "speculative_method": Argument("speculative_config", write=_speculation),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "trust_remote_code": Argument("--trust_remote_code"),
        "revision": Argument("--revision"),
        "chat_template": Argument("--chat_template"),
        "tool_call_parser": Argument("--tool_parser"),
    },
    {
        "quantization": "the checkpoint's own config decides it",
        "gpu_memory_utilization": "it is called free_gpu_memory_fraction there and counts otherwise",
        "data_parallel_size": "start one engine for each, with replicas",
        "decode_context_parallel_size": "kvplan does not know its context parallelism",
        "mamba_cache_dtype": "convolution states have the model's dtype",
        "window_size_shares": "the engine divides the memory by itself",
        "mamba_state_cache_interval": "kvplan does not know the key in 1.2",
        "served_model_name": "the model is served under its own name",
    },
    {"tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size"},
    image=Image(
        "nvcr.io/nvidia/tensorrt-llm/release", "{}", ("trtllm-serve",), PYTHON_PROBE
    ),  # NGC tensorrt-llm/release
)
