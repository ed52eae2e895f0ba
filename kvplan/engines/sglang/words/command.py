"""The arguments of SGLang 0.5.23: python/sglang/srt/arg_groups/fields/*.py and server_args.py."""

from __future__ import annotations

from typing import Any

from kvplan.engines.command import (
    PYTHON_PROBE,
    SWITCH,
    Across,
    Argument,
    Asked,
    Checkpoint,
    EngineTable,
    Image,
    drafting,
    experts,
    length_override,
    longest,
    variable,
    whole,
    words,
)
from kvplan.errors import KvplanError

_SGLANG_METHODS = {"draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3"}


_ONE_OPTION = "0.5.22"
"""Since then --attn-dp-size says by itself what --enable-dp-attention and --dp-size said together."""


def _engines_beside(value: Any, asked: Asked) -> object:
    return () if asked.option("enable_dp_attention") and asked.since(_ONE_OPTION) else value


def _divided_attention(value: Any, asked: Asked) -> object:
    """Data-parallel attention inside tensor parallelism, of a plan that says it the older way."""
    if not asked.since(_ONE_OPTION):
        return bool(value) and not asked.option("attn_dp_size")
    return asked.settings.data_parallel_size if value and not asked.option("attn_dp_size") else ()


def _attention_groups(value: Any, asked: Asked) -> object:
    return value if asked.since(_ONE_OPTION) else (value, "--enable-dp-attention")


def _unless(value: Any, asked: Asked) -> object:
    return () if value else True


_BACKENDS = "0.5.14"
"""Since then graphs are chosen a phase each."""


def _no_graphs(value: Any, asked: Asked) -> object:
    if not asked.since(_BACKENDS):
        return bool(value)
    return ("disabled", "--cuda-graph-backend-prefill", "disabled") if value else ()


def _speculation(value: Any, asked: Asked) -> object:
    """A chain of so many steps: one candidate a step, and the verified token besides."""
    if value == "ngram":
        tokens, _ = drafting("sglang", value, asked, own=True)
        return "NGRAM", "--speculative-num-draft-tokens", tokens + 1
    own = str(value).endswith("mtp")
    steps, draft = drafting("sglang", value, asked, own=own)
    if not own and value not in _SGLANG_METHODS:
        raise KvplanError(
            "bad-argument", f"sglang has no method {value!r}", help="mtp, eagle, eagle3, draft_model, ngram"
        )
    words = [_SGLANG_METHODS.get(value, "NEXTN"), "--speculative-num-steps", steps]
    tree, verified = asked.option("speculative_eagle_topk"), asked.option("speculative_num_draft_tokens")
    if tree in (None, 1):
        verified = steps + 1
    words += ["--speculative-eagle-topk", tree or 1, "--speculative-num-draft-tokens", verified]
    if draft is not None:
        words += ["--speculative-draft-model-path", draft]
    return tuple(words)


def _model(checkpoint: Checkpoint, path: str) -> list[str]:
    del checkpoint
    return ["--model-path", path]


_KV_WORDS = words("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bfloat16", "nvfp4", "fp4_mx_block16",
                    fp8="fp8_e4m3", bf16="bfloat16")  # fmt: skip
_NONE = {
    "kv_cache_memory": "its pool follows from mem_fraction_static, or max_total_tokens",
    "gpu_memory_utilization": "it is called mem_fraction_static there and counts otherwise",
    "max_num_batched_tokens": "the largest prefill is chunked_prefill_size",
    "num_gpu_blocks_override": "it is called max_total_tokens there",
    "mamba_cache_dtype": "convolution states have the model's dtype",
    "async_scheduling": "it is disable_overlap_schedule there",
    "disable_hybrid_kv_cache_manager": "it is disable_hybrid_swa_memory there",
    "draft_layers": "the draft model decides it",
    "speculative_eagle_topk": "it belongs to a draft",
    "speculative_num_draft_tokens": "it belongs to a draft",
    "mamba_padding_slot": "the release decides it",
}
_NODES = ("--nnodes", "{nodes}", "--node-rank", "{rank}", "--dist-init-addr", "{leader}:20000")
TABLE = EngineTable(
    "sglang",
    ("python3", "-m", "sglang.launch_server"),
    {
        "tensor_parallel_size": Argument("--tp-size"),
        "pipeline_parallel_size": Argument("--pp-size"),
        "data_parallel_size": Argument("--dp-size", write=_engines_beside),
        "enable_dp_attention": Argument(
            "--attn-dp-size", write=_divided_attention, since=_ONE_OPTION, before="--enable-dp-attention"
        ),
        "attn_dp_size": Argument(
            "--attn-dp-size", write=_attention_groups, since=_ONE_OPTION, before="--dp-size"
        ),
        "enable_dp_lm_head": Argument("--enable-dp-lm-head"),
        "ep_size": Argument("--ep-size"),
        "moe_a2a_backend": Argument("--moe-a2a-backend"),
        "moe_dense_tp_size": Argument("--moe-dense-tp-size"),
        "ep_num_redundant_experts": Argument("--ep-num-redundant-experts"),
        "decode_context_parallel_size": Argument("--dcp-size"),
        "enable_expert_parallel": Argument("--ep-size", write=experts),
        "dtype": Argument("--dtype"),
        "quantization": Argument("--quantization"),
        "kv_cache_dtype": Argument("--kv-cache-dtype", words=_KV_WORDS),
        "mamba_ssm_cache_dtype": Argument("--mamba-ssm-dtype"),
        "max_model_len": Argument("--context-length", write=longest()),
        "any_length": variable("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", SWITCH),
        "config_length": Argument("--json-model-override-args", write=length_override),
        "max_num_seqs": Argument("--max-running-requests"),
        "block_size": Argument("--page-size"),
        "mem_fraction_static": Argument("--mem-fraction-static"),
        "max_total_tokens": Argument("--max-total-tokens"),
        "cuda_graph_max_bs": Argument(
            "--cuda-graph-max-bs-decode", since=_BACKENDS, before="--cuda-graph-max-bs"
        ),
        "disaggregation_mode": Argument("--disaggregation-mode"),
        "chunked_prefill_size": Argument("--chunked-prefill-size"),
        "max_prefill_tokens": Argument("--max-prefill-tokens"),
        "enable_mixed_chunk": Argument("--enable-mixed-chunk"),
        "schedule_policy": Argument("--schedule-policy"),
        "schedule_conservativeness": Argument("--schedule-conservativeness"),
        "radix_eviction_policy": Argument("--radix-eviction-policy"),
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
        "enforce_eager": Argument(
            "--cuda-graph-backend-decode", write=_no_graphs, since=_BACKENDS, before="--disable-cuda-graph"
        ),
        "cpu_offload_gb": Argument("--cpu-offload-gb", write=whole),
        "speculative_method": Argument("--speculative-algorithm", write=_speculation),
        "enable_two_batch_overlap": Argument("--enable-two-batch-overlap"),
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
    _NONE,
    {
        "tensor_parallel_size": "tp_size",
        "pipeline_parallel_size": "pp_size",
        "data_parallel_size": "dp_size",
        "disable_cuda_graph": "cuda_graph_backend_decode",
        "speculative_config": "speculative_algorithm",
    },
    port=30000,
    # sgl-project/sglang python/sglang/srt/server_args.py; workers wait for their leader by themselves
    across=Across(_NODES, _NODES),
    random=("--model-path", "{}", "--load-format", "dummy"),
    image=Image(
        "lmsysorg/sglang", "v{}", ("python3", "-m", "sglang.launch_server"), PYTHON_PROBE
    ),  # docs.sglang.ai get_started/install
    model=_model,
)
