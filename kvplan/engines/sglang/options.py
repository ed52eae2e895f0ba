"""The options that SGLang alone has; read by the command line without loading the engine."""

from __future__ import annotations

from kvplan.engines.options import LENGTH, LORA, EngineOption

A2A_BACKENDS = ("none", "deepep", "mooncake", "nixl", "mori", "flashinfer")
ROLES = ("null", "prefill", "decode")
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
DSA_BACKENDS = ("flashmla_sparse", "flashmla_kv", "fa3", "tilelang", "trtllm", "flashinfer_sparse_mla")
SCHEDULE_POLICIES = tuple(
    "fcfs lpm lof dfs-weight random routing-key hrrn shortest-prefill-first priority".split()
)
EVICTION_POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru")
OPTIONS = (
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
        "chunked_prefill_size",
        "count",
        "Tokens of a prefill chunk (default: by the GPU's memory; -1: prompts are not divided).",
        lowest=-1,
    ),
    EngineOption(
        "cuda_graph_max_bs", "count", "Requests of the largest decode graph (default: by the GPU's memory)."
    ),
    EngineOption(
        "disaggregation_mode",
        "word",
        "What the server does where prompts and answers have servers of their own.",
        default="null",
        choices=ROLES,
    ),
    EngineOption("max_prefill_tokens", "count", "Tokens of all prompts of a prefill (default: 16,384)."),
    EngineOption("enable_mixed_chunk", "flag", "Answers beside the prompts of a prefill.", default=False),
    EngineOption(
        "schedule_policy", "word", "Order of waiting requests.", default="fcfs", choices=SCHEDULE_POLICIES
    ),
    EngineOption(
        "schedule_conservativeness", "ratio", "How much of its answer a running request is expected to make."
    ),
    EngineOption(
        "radix_eviction_policy",
        "word",
        "What the radix cache forgets first.",
        default="lru",
        choices=EVICTION_POLICIES,
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
    *LORA,
    EngineOption("max_loras_per_batch", "count", "Adapters in one batch: slots on the GPU (default: 8)."),
    *LENGTH,
)
