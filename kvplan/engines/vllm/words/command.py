"""The arguments of vLLM: vllm/engine/arg_utils.py in 0.8.5 to 0.32 (every release in which one appeared)."""

from __future__ import annotations

from typing import Any

from kvplan.engines.command import (
    PYTHON_PROBE,
    SWITCH,
    Across,
    Argument,
    Asked,
    EngineTable,
    Image,
    compact,
    drafting,
    length_override,
    longest,
    variable,
)
from kvplan.engines.vllm.options import EXPANDABLE, FLASHINFER_SAMPLES

_NODES = ("--nnodes", "{nodes}", "--node-rank", "{rank}", "--master-addr", "{leader}")

_OWN_DRAFT = ("ngram", "ngram_gpu", "suffix")
"""Methods of vLLM that draft without a model of their own, beside those that end in mtp."""


def _speculation(value: Any, asked: Asked) -> object:
    own = value in _OWN_DRAFT or str(value).endswith("mtp")
    tokens, draft = drafting("vllm", value, asked, own=own)
    entry = {"method": value, "num_speculative_tokens": tokens}
    return compact(entry if draft is None else {**entry, "model": draft})


def _graphs(value: Any, asked: Asked) -> object:
    del asked
    return compact({"cudagraph_mode": str(value).upper()})


TABLE = EngineTable(
    "vllm",
    ("vllm", "serve"),
    {
        "tensor_parallel_size": Argument("--tensor-parallel-size"),
        "pipeline_parallel_size": Argument("--pipeline-parallel-size"),
        "data_parallel_size": Argument("--data-parallel-size"),
        "decode_context_parallel_size": Argument("--decode-context-parallel-size", since="0.10.2"),
        "prefill_context_parallel_size": Argument("--prefill-context-parallel-size", since="0.32"),
        "enable_expert_parallel": Argument("--enable-expert-parallel"),
        "dtype": Argument("--dtype"),
        "quantization": Argument("--quantization"),
        "kv_cache_dtype": Argument("--kv-cache-dtype"),
        "mamba_cache_dtype": Argument("--mamba-cache-dtype", since="0.10.1"),
        "mamba_ssm_cache_dtype": Argument("--mamba-ssm-cache-dtype", since="0.10.1"),
        "max_model_len": Argument("--max-model-len", write=longest("auto", since="0.14")),
        "config_length": Argument("--hf-overrides", write=length_override),
        "max_num_seqs": Argument("--max-num-seqs"),
        "max_num_batched_tokens": Argument("--max-num-batched-tokens"),
        "block_size": Argument("--block-size"),
        "gpu_memory_utilization": Argument("--gpu-memory-utilization"),
        "kv_cache_memory": Argument("--kv-cache-memory-bytes", since="0.10.2"),
        "num_gpu_blocks_override": Argument("--num-gpu-blocks-override"),
        "enable_prefix_caching": Argument("--enable-prefix-caching", off="--no-enable-prefix-caching"),
        "disable_hybrid_kv_cache_manager": Argument(
            "--disable-hybrid-kv-cache-manager", off="--no-disable-hybrid-kv-cache-manager", since="0.9.1"
        ),
        "attention_backend": Argument("--attention-backend", since="0.13", env="VLLM_ATTENTION_BACKEND"),
        "async_scheduling": Argument("--async-scheduling", off="--no-async-scheduling", since="0.10"),
        "enforce_eager": Argument("--enforce-eager"),
        "cpu_offload_gb": Argument("--cpu-offload-gb"),
        "kv_offloading_size": Argument("--kv-offloading-size", since="0.11.1"),
        "enable_chunked_prefill": Argument("--enable-chunked-prefill", off="--no-enable-chunked-prefill"),
        "disable_sliding_window": Argument("--disable-sliding-window"),
        "kv_offloading_backend": Argument("--kv-offloading-backend", since="0.11.1"),
        "kv_transfer_config": Argument("--kv-transfer-config"),
        "kv_events_config": Argument("--kv-events-config", since="0.9"),
        "speculative_method": Argument("--speculative-config", write=_speculation),
        "enable_lora": Argument("--enable-lora"),
        "max_loras": Argument("--max-loras"),
        "max_lora_rank": Argument("--max-lora-rank"),
        "lora_dtype": Argument("--lora-dtype"),
        "lora_target_modules": Argument("--lora-target-modules", since="0.20"),
        "fully_sharded_loras": Argument("--fully-sharded-loras"),
        "limit_mm_per_prompt": Argument("--limit-mm-per-prompt"),
        "mm_processor_kwargs": Argument("--mm-processor-kwargs"),
        "language_model_only": Argument("--language-model-only", since="0.17"),
        "skip_mm_profiling": Argument("--skip-mm-profiling", since="0.10.1"),
        "mm_encoder_tp_mode": Argument("--mm-encoder-tp-mode", since="0.10.2"),
        "any_length": variable("VLLM_ALLOW_LONG_MAX_MODEL_LEN", SWITCH),
        "performance_mode": Argument("--performance-mode", since="0.17"),
        "runner": Argument("--runner", since="0.10"),
        "model_runner": variable("VLLM_USE_V2_MODEL_RUNNER", {"v1": 0, "v2": 1, "auto": None}),
        "flashinfer": variable("VLLM_USE_FLASHINFER_SAMPLER", FLASHINFER_SAMPLES),
        "estimate_cudagraphs": variable(
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", {"True": None, "False": 0}
        ),
        "pytorch_alloc_conf": variable("PYTORCH_CUDA_ALLOC_CONF", {EXPANDABLE: EXPANDABLE, "native": None}),
        "max_cudagraph_capture_size": Argument("--max-cudagraph-capture-size", since="0.11.1"),
        "cudagraph_capture_sizes": Argument("--cudagraph-capture-sizes", since="0.11.1"),
        "cudagraph_mode": Argument("--compilation-config", since="0.11", write=_graphs),
        "enable_sleep_mode": Argument("--enable-sleep-mode"),
        "moe_backend": Argument("--moe-backend", since="0.17"),
        "kv_cache_dtype_skip_layers": Argument("--kv-cache-dtype-skip-layers", since="0.20"),
        "mamba_cache_mode": Argument("--mamba-cache-mode", since="0.15"),
        "enable_eplb": Argument("--enable-eplb", since="0.9.1"),
        "num_redundant_experts": Argument("--eplb-config.num_redundant_experts", since="0.11"),
        "indexer_kv_dtype": Argument("--attention-config.indexer_kv_dtype", since="0.24"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "served_model_name": Argument("--served-model-name"),
        "trust_remote_code": Argument("--trust-remote-code"),
        "revision": Argument("--revision"),
        "chat_template": Argument("--chat-template"),
        "tool_call_parser": Argument("--tool-call-parser"),
    },
    {},
    {},
    random=("--model", "{}", "--load-format", "dummy"),
    # vllm-project/vllm#23691, whose ranks of data parallelism follow from the node's (engine/arg_utils.py)
    across=Across(_NODES, (*_NODES, "--headless"), since="0.12"),
    # docs.vllm.ai deployment/docker; docs/getting_started/installation/gpu.rocm.inc.md since v0.14.0
    image=Image(
        "vllm/vllm-openai",
        "v{}",
        ("vllm", "serve"),
        PYTHON_PROBE,
        amd="vllm/vllm-openai-rocm",
        amd_since="0.14",
    ),
)
