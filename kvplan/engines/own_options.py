"""The options that one engine alone has, by engine; read by the command line without loading the engines."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import EngineOption

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SPREAD = {"llamacpp": "pipeline_parallel_size"}
"""Engines that deal their layers over every GPU that they see (llama.cpp's --split-mode layer, its default),
and the size that says how many."""
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ in src/llama-cparams.h."""
SERVER_SLOTS = 4
"""llama-server without -np (tools/server/server.cpp): four slots in one buffer."""
LLAMACPP = (
    EngineOption("cache_type_k", "word", "Cache type of K.", choices=CACHE_TYPES, flags=("-ctk",)),
    EngineOption("cache_type_v", "word", "Cache type of V.", choices=CACHE_TYPES, flags=("-ctv",)),
    EngineOption("ctx_size", "count", "n_ctx, over all slots (default: what the requests need)."),
    EngineOption("parallel", "count", "Slots (default: one a request).", highest=MAX_SLOTS),
    EngineOption(
        "kv_unified",
        "flag",
        "One buffer for all slots; without --parallel at least 4, as llama-server.",
        default=False,
    ),
    EngineOption(
        "ubatch_size", "count", "Physical batch: a window layer has so many cells more.", default=512
    ),
    EngineOption("swa_full", "flag", "Window layers at full length.", default=False),
    EngineOption("flash_attn", "flag", "Flash attention; a quantised V needs it.", default=True),
    EngineOption(
        "n_gpu_layers",
        "count",
        "Layers on the GPUs, the last ones (default: all).",
        lowest=0,
        flags=("-ngl",),
    ),
    EngineOption(
        "n_cpu_moe",
        "count",
        "Layers, the first ones, whose experts stay in host memory.",
        lowest=0,
        flags=("-ncmoe",),
    ),
    EngineOption("cpu_moe", "flag", "All experts stay in host memory.", default=False, flags=("-cmoe",)),
    EngineOption("kv_offload", "flag", "Keep the cache on the GPUs; off: in host memory.", default=True),
    EngineOption(
        "host_memory",
        "size",
        "Host memory that the cache may take, where it lies there: 64GiB.",
        served=False,
    ),
)

_LORA = (
    EngineOption("enable_lora", "flag", "Room for LoRA adapters beside the weights.", default=False),
    EngineOption("max_lora_rank", "count", "Largest rank of an adapter (vLLM's default: 16)."),
    EngineOption(
        "lora_target_modules",
        "words",
        "Modules that may have adapters, such as qkv_proj,o_proj (vLLM: all by default).",
    ),
)
VLLM = (
    *_LORA,
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

A2A_BACKENDS = ("none", "deepep", "mooncake", "nixl", "mori", "flashinfer")
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
DSA_BACKENDS = ("flashmla_sparse", "flashmla_kv", "fa3", "tilelang", "trtllm", "flashinfer_sparse_mla")
SGLANG = (
    EngineOption(
        "mem_fraction_static",
        "share",
        "Part of the memory for weights and cache (default: by the GPU's memory).",
    ),
    EngineOption(
        "swa_full_tokens_ratio",
        "share",
        "Tokens of the window pool per token of the full one (default: 0.8; DeepSeek-V4 and Inkling 0.1).",
    ),
    EngineOption("disable_hybrid_swa_memory", "flag", "Window layers keep every token.", default=False),
    EngineOption(
        "disable_radix_cache",
        "flag",
        "No reuse of prompts: a state-space request takes one slot.",
        default=False,
    ),
    EngineOption("disable_overlap_schedule", "flag", "No overlap of scheduling and forward.", default=False),
    EngineOption(
        "mamba_full_memory_ratio", "ratio", "Memory of states per memory of KV (default: 0.9; Inkling 0.1)."
    ),
    EngineOption(
        "mamba_radix_cache_strategy",
        "word",
        "How states are kept for reuse.",
        default="auto",
        choices=STRATEGIES,
    ),
    EngineOption(
        "mamba_padding_slot",
        "flag",
        "The slot for padding comes out of the budget; off: before July 2026 (sglang#32184).",
        default=True,
    ),
    EngineOption("max_mamba_cache_size", "count", "Slots of states, whatever the memory."),
    EngineOption("max_total_tokens", "count", "Upper bound of the pool's tokens."),
    EngineOption(
        "chunked_prefill_size", "count", "Tokens of a prefill chunk (default: by the GPU's memory)."
    ),
    EngineOption(
        "draft_layers", "count", "Layers of the draft model (default: the model's own prediction layers)."
    ),
    EngineOption("dsa_prefill_backend", "word", "Prefill backend of sparse attention.", choices=DSA_BACKENDS),
    EngineOption("dsa_decode_backend", "word", "Decode backend of sparse attention.", choices=DSA_BACKENDS),
    EngineOption(
        "enable_dp_attention", "flag", "Attention data-parallel over --dp inside --tp.", default=False
    ),
    EngineOption("attn_dp_size", "count", "The same in one option: attention groups inside --tp."),
    EngineOption("enable_dp_lm_head", "flag", "Head divided inside an attention group.", default=False),
    EngineOption("ep_size", "count", "Ranks among which whole experts are divided (default: 1)."),
    EngineOption("moe_a2a_backend", "word", "All-to-all of experts: sets ep_size.", choices=A2A_BACKENDS),
    EngineOption("moe_dense_tp_size", "count", "1: perceptrons without experts whole on each rank."),
    EngineOption("ep_num_redundant_experts", "count", "Copies of experts beside the model's own.", lowest=0),
    *_LORA,
    EngineOption("max_loras_per_batch", "count", "Adapters in one batch: slots on the GPU (default: 8)."),
)

TRTLLM = (
    EngineOption(
        "free_gpu_memory_fraction",
        "share",
        "Part of the memory that the start-up run leaves, for the cache.",
        default=Fraction(9, 10),
    ),
    EngineOption(
        "max_attention_window", "counts", "Window of each layer, repeated over the layers (default: none)."
    ),
    EngineOption(
        "window_size_shares",
        "shares",
        "Part of the memory of each window size, smallest first (default: equal).",
    ),
    EngineOption("max_tokens", "count", "Upper bound of the pool's tokens; not for several windows."),
    EngineOption(
        "use_kv_cache_manager_v2",
        "flag",
        "The prototype that shares pools between windows whose blocks are alike.",
        default=False,
    ),
    EngineOption(
        "max_util_for_resume",
        "share",
        "Part of the pool up to which requests resume, for the prototype.",
        default=Fraction(95, 100),
    ),
    EngineOption(
        "mamba_state_cache_interval",
        "count",
        "Tokens between snapshots of a state (default: no reuse of states).",
    ),
    EngineOption(
        "enable_attention_dp", "flag", "Attention data-parallel: every rank keeps all heads.", default=False
    ),
    EngineOption(
        "moe_expert_parallel_size", "count", "Ranks among which whole experts are divided (default: 1)."
    ),
)

OPTIONS_OF: dict[str, tuple[EngineOption, ...]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "trtllm": TRTLLM,
    "llamacpp": LLAMACPP,
}
