"""The arguments of vLLM, SGLang, TensorRT-LLM and llama.cpp, as data.

Read in: vLLM 0.8.5 to 0.32 vllm/engine/arg_utils.py (every release in which an argument appeared); SGLang
0.5.23 python/sglang/srt/arg_groups/fields/*.py and server_args.py; TensorRT-LLM 1.2
tensorrt_llm/commands/serve.py and llmapi/llm_args.py (extra="forbid": an unknown key is refused); llama.cpp
0.5.0 common/arg.cpp."""

from __future__ import annotations

from typing import Any

from kvplan.dtypes import kv_dtype
from kvplan.engines.own_options import CACHE_TYPES
from kvplan.errors import KvplanError
from kvplan.report.emit.arguments import Argument, Asked, EngineTable, longest, whole
from kvplan.report.emit.speculation import sglang_speculation, trtllm_speculation, vllm_speculation


def _experts(value: Any, asked: Asked) -> object:
    """Whole experts on each GPU of the tensor-parallel group, unless an option of its own says how many."""
    if any(asked.option(name) for name in ("ep_size", "moe_expert_parallel_size")):
        return ()
    return asked.settings.tensor_parallel_size if value else ()


def _engines_beside(value: Any, asked: Asked) -> object:
    return () if asked.option("enable_dp_attention") else value


def _attention_groups(value: Any, asked: Asked) -> object:
    """Data-parallel attention inside tensor parallelism: its own flag since --enable-dp-attention is
    deprecated."""
    return asked.settings.data_parallel_size if value and not asked.option("attn_dp_size") else ()


def _unless(value: Any, asked: Asked) -> object:
    return () if value else True


def _no_graphs(value: Any, asked: Asked) -> object:
    return ("disabled", "--cuda-graph-backend-prefill", "disabled") if value else ()


def _both_caches(value: Any, asked: Asked) -> object:
    word = GGML_WORDS.get(kv_dtype(value).name, kv_dtype(value).name)
    if word not in CACHE_TYPES:
        raise KvplanError(
            "bad-argument", f"llamacpp has no cache type {value!r}", help="one of " + ", ".join(CACHE_TYPES)
        )
    return (word, "--cache-type-v", word)


def _on_off(value: Any, asked: Asked) -> object:
    return "on" if value else "off"


def _words(*words: str, **renamed: str) -> dict[str, object]:
    return {**{word: word for word in words}, **renamed}


GGML_WORDS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_SGLANG_KV = _words("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bfloat16", "nvfp4", "fp4_mx_block16",
                    fp8="fp8_e4m3", bf16="bfloat16")  # fmt: skip
_TRTLLM_KV = _words("auto", "fp8", "nvfp4", fp8_e4m3="fp8")

VLLM = EngineTable(
    "vllm",
    ("vllm", "serve"),
    {
        "tensor_parallel_size": Argument("--tensor-parallel-size"),
        "pipeline_parallel_size": Argument("--pipeline-parallel-size"),
        "data_parallel_size": Argument("--data-parallel-size"),
        "decode_context_parallel_size": Argument("--decode-context-parallel-size", since="0.10.2"),
        "enable_expert_parallel": Argument("--enable-expert-parallel"),
        "dtype": Argument("--dtype"),
        "quantization": Argument("--quantization"),
        "kv_cache_dtype": Argument("--kv-cache-dtype"),
        "mamba_cache_dtype": Argument("--mamba-cache-dtype", since="0.10.1"),
        "mamba_ssm_cache_dtype": Argument("--mamba-ssm-cache-dtype", since="0.10.1"),
        "max_model_len": Argument("--max-model-len", write=longest("auto", since="0.14")),
        "max_num_seqs": Argument("--max-num-seqs"),
        "max_num_batched_tokens": Argument("--max-num-batched-tokens"),
        "block_size": Argument("--block-size"),
        "gpu_memory_utilization": Argument("--gpu-memory-utilization"),
        "kv_cache_memory": Argument("--kv-cache-memory-bytes", since="0.10.2"),
        "num_gpu_blocks_override": Argument("--num-gpu-blocks-override"),
        "enable_prefix_caching": Argument("--enable-prefix-caching", off="--no-enable-prefix-caching"),
        "disable_hybrid_kv_cache_manager": Argument("--disable-hybrid-kv-cache-manager", since="0.9.1"),
        "attention_backend": Argument("--attention-backend", since="0.13", env="VLLM_ATTENTION_BACKEND"),
        "async_scheduling": Argument("--async-scheduling", off="--no-async-scheduling", since="0.10"),
        "enforce_eager": Argument("--enforce-eager"),
        "cpu_offload_gb": Argument("--cpu-offload-gb"),
        "speculative_method": Argument("--speculative-config", write=vllm_speculation),
        "enable_lora": Argument("--enable-lora"),
        "max_loras": Argument("--max-loras"),
        "max_lora_rank": Argument("--max-lora-rank"),
        "lora_dtype": Argument("--lora-dtype"),
        "lora_target_modules": Argument("--lora-target-modules", since="0.20"),
        "fully_sharded_loras": Argument("--fully-sharded-loras"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "served_model_name": Argument("--served-model-name"),
        "trust_remote_code": Argument("--trust-remote-code"),
        "revision": Argument("--revision"),
        "chat_template": Argument("--chat-template"),
        "tool_call_parser": Argument("--tool-call-parser"),
        "kv_offloading_size": Argument("--kv-offloading-size", since="0.11.1"),
        "kv_offloading_backend": Argument("--kv-offloading-backend", since="0.11.1"),
    },
    {},
    {},
)

_SGLANG_NONE = {
    "kv_cache_memory": "its pool follows from mem_fraction_static, or max_total_tokens",
    "gpu_memory_utilization": "it is called mem_fraction_static there and counts otherwise",
    "max_num_batched_tokens": "the largest prefill is chunked_prefill_size",
    "num_gpu_blocks_override": "it is called max_total_tokens there",
    "mamba_cache_dtype": "convolution states have the model's dtype",
    "async_scheduling": "it is disable_overlap_schedule there",
    "disable_hybrid_kv_cache_manager": "it is disable_hybrid_swa_memory there",
    "draft_layers": "the draft model decides it",
    "mamba_padding_slot": "the release decides it",
}
SGLANG = EngineTable(
    "sglang",
    ("python3", "-m", "sglang.launch_server"),
    {
        "tensor_parallel_size": Argument("--tp-size"),
        "pipeline_parallel_size": Argument("--pp-size"),
        "data_parallel_size": Argument("--dp-size", write=_engines_beside),
        "enable_dp_attention": Argument("--attn-dp-size", write=_attention_groups),
        "attn_dp_size": Argument("--attn-dp-size"),
        "enable_dp_lm_head": Argument("--enable-dp-lm-head"),
        "ep_size": Argument("--ep-size"),
        "moe_a2a_backend": Argument("--moe-a2a-backend"),
        "moe_dense_tp_size": Argument("--moe-dense-tp-size"),
        "ep_num_redundant_experts": Argument("--ep-num-redundant-experts"),
        "decode_context_parallel_size": Argument("--dcp-size"),
        "enable_expert_parallel": Argument("--ep-size", write=_experts),
        "dtype": Argument("--dtype"),
        "quantization": Argument("--quantization"),
        "kv_cache_dtype": Argument("--kv-cache-dtype", words=_SGLANG_KV),
        "mamba_ssm_cache_dtype": Argument("--mamba-ssm-dtype"),
        "max_model_len": Argument("--context-length", write=longest()),
        "max_num_seqs": Argument("--max-running-requests"),
        "block_size": Argument("--page-size"),
        "mem_fraction_static": Argument("--mem-fraction-static"),
        "max_total_tokens": Argument("--max-total-tokens"),
        "chunked_prefill_size": Argument("--chunked-prefill-size"),
        "swa_full_tokens_ratio": Argument("--swa-full-tokens-ratio"),
        "disable_hybrid_swa_memory": Argument("--disable-hybrid-swa-memory"),
        "enable_prefix_caching": Argument("--disable-radix-cache", write=_unless),
        "disable_radix_cache": Argument("--disable-radix-cache"),
        "disable_overlap_schedule": Argument("--disable-overlap-schedule"),
        "mamba_full_memory_ratio": Argument("--mamba-full-memory-ratio"),
        "mamba_radix_cache_strategy": Argument("--mamba-radix-cache-strategy"),
        "max_mamba_cache_size": Argument("--max-mamba-cache-size"),
        "attention_backend": Argument("--attention-backend"),
        "dsa_prefill_backend": Argument("--dsa-prefill-backend"),
        "dsa_decode_backend": Argument("--dsa-decode-backend"),
        "enforce_eager": Argument("--cuda-graph-backend-decode", write=_no_graphs),
        "cpu_offload_gb": Argument("--cpu-offload-gb", write=whole),
        "speculative_method": Argument("--speculative-algorithm", write=sglang_speculation),
        "enable_lora": Argument("--enable-lora"),
        "max_loras_per_batch": Argument("--max-loras-per-batch"),
        "max_lora_rank": Argument("--max-lora-rank"),
        "lora_target_modules": Argument("--lora-target-modules"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "served_model_name": Argument("--served-model-name"),
        "trust_remote_code": Argument("--trust-remote-code"),
        "revision": Argument("--revision"),
        "chat_template": Argument("--chat-template"),
        "tool_call_parser": Argument("--tool-call-parser"),
        "enable_hierarchical_cache": Argument("--enable-hierarchical-cache"),
        "hicache_size": Argument("--hicache-size"),
        "hicache_write_policy": Argument("--hicache-write-policy"),
    },
    _SGLANG_NONE,
    {
        "tensor_parallel_size": "tp_size",
        "pipeline_parallel_size": "pp_size",
        "data_parallel_size": "dp_size",
        "disable_cuda_graph": "cuda_graph_backend_decode",
        "speculative_config": "speculative_algorithm",
    },
)

_KV = "kv_cache_config"
TRTLLM = EngineTable(
    "trtllm",
    ("trtllm-serve",),
    {
        "tensor_parallel_size": Argument("--tp_size"),
        "pipeline_parallel_size": Argument("--pp_size"),
        "enable_expert_parallel": Argument("--ep_size", write=_experts),
        "moe_expert_parallel_size": Argument("--ep_size"),
        "max_model_len": Argument("--max_seq_len", write=longest()),
        "max_num_seqs": Argument("--max_batch_size"),
        "max_num_batched_tokens": Argument("--max_num_tokens"),
        "dtype": Argument("dtype"),
        "enable_attention_dp": Argument("enable_attention_dp"),
        "kv_cache_dtype": Argument(f"{_KV}.dtype", words=_TRTLLM_KV),
        "mamba_ssm_cache_dtype": Argument(f"{_KV}.mamba_ssm_cache_dtype"),
        "block_size": Argument(f"{_KV}.tokens_per_block"),
        # The file's kv_cache_config replaces the one that --free_gpu_memory_fraction is put into.
        "free_gpu_memory_fraction": Argument(f"{_KV}.free_gpu_memory_fraction"),
        "kv_cache_memory": Argument(f"{_KV}.max_gpu_total_bytes"),
        "max_tokens": Argument(f"{_KV}.max_tokens"),
        "max_attention_window": Argument(f"{_KV}.max_attention_window"),
        "enable_prefix_caching": Argument(f"{_KV}.enable_block_reuse"),
        "use_kv_cache_manager_v2": Argument(f"{_KV}.use_kv_cache_manager_v2"),
        "max_util_for_resume": Argument(f"{_KV}.max_util_for_resume"),
        "enforce_eager": Argument("cuda_graph_config", write=lambda value, asked: None),
        "speculative_method": Argument("speculative_config", write=trtllm_speculation),
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
)

LLAMACPP = EngineTable(
    "llamacpp",
    ("llama-server",),
    {
        "ctx_size": Argument("--ctx-size"),
        "parallel": Argument("--parallel"),
        "kv_unified": Argument("--kv-unified", off="--no-kv-unified"),
        "n_gpu_layers": Argument("--n-gpu-layers"),
        "n_cpu_moe": Argument("--n-cpu-moe"),
        "cpu_moe": Argument("--cpu-moe"),
        "kv_cache_dtype": Argument("--cache-type-k", write=_both_caches),
        "cache_type_k": Argument("--cache-type-k"),
        "cache_type_v": Argument("--cache-type-v"),
        "ubatch_size": Argument("--ubatch-size"),
        "swa_full": Argument("--swa-full"),
        "flash_attn": Argument("--flash-attn", write=_on_off),
        "kv_offload": Argument("--kv-offload", off="--no-kv-offload"),
        "enable_prefix_caching": Argument("--cache-prompt", off="--no-cache-prompt"),
        # Layers go over every GPU that the process sees: no argument says how many.
        "pipeline_parallel_size": Argument("--split-mode", write=lambda value, asked: "layer"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "served_model_name": Argument("--alias"),
        "chat_template": Argument("--chat-template"),
    },
    {
        "max_model_len": "ctx_size is the length over all slots",
        "max_num_seqs": "it is called parallel there",
        "max_num_batched_tokens": "it is called ubatch_size there",
        "tensor_parallel_size": "it deals whole layers over its GPUs: use pipeline_parallel_size",
        "data_parallel_size": "start one server for each, with replicas",
        "dtype": "the GGUF file decides it",
        "quantization": "the GGUF file decides it",
        "trust_remote_code": "a GGUF file has no code",
        "revision": "name the file",
        "tool_call_parser": "the chat template decides it",
        "gpu_memory_utilization": "it allocates what ctx_size needs",
        "kv_cache_memory": "it allocates what ctx_size needs",
    },
    {},
    required=("ctx_size", "parallel"),
)
TABLES = {table.engine: table for table in (VLLM, SGLANG, TRTLLM, LLAMACPP)}
