"""The options that SGLang alone has; read by the command line without loading the engine."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import ServerOptions, option, options_of
from kvplan.record import record

A2A_BACKENDS = ("none", "deepep", "mooncake", "nixl", "mori", "flashinfer")
ROLES = ("null", "prefill", "decode")
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
DSA_BACKENDS = ("flashmla_sparse", "flashmla_kv", "fa3", "tilelang", "trtllm", "flashinfer_sparse_mla")
SCHEDULE_POLICIES = tuple(
    "fcfs lpm lof dfs-weight random routing-key hrrn shortest-prefill-first priority".split()
)
EVICTION_POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru")


@record()
class SglangOptions(ServerOptions):
    """The options that SGLang alone has."""

    mem_fraction_static: Fraction | None = option(
        "share", "Part of the memory for weights and cache (default: by the GPU's memory)."
    )
    swa_full_tokens_ratio: Fraction | None = option(
        "share",
        "Tokens of the window pool per token of the full one (default: 0.8; DeepSeek-V4 and Inkling 0.1).",
    )
    disable_hybrid_swa_memory: bool = option("flag", "Window layers keep every token.", False)
    disable_radix_cache: bool = option(
        "flag", "No reuse of prompts: a state-space request takes one slot.", False
    )
    disable_overlap_schedule: bool = option("flag", "No overlap of scheduling and forward.", False)
    mamba_full_memory_ratio: Fraction | None = option(
        "ratio", "Memory of states per memory of KV (default: 0.9; Inkling 0.1)."
    )
    mamba_radix_cache_strategy: str = option(
        "word", "How states are kept for reuse.", "auto", choices=STRATEGIES
    )
    mamba_padding_slot: bool = option(
        "flag", "The slot for padding comes out of the budget; off: before July 2026 (sglang#32184).", True
    )
    max_mamba_cache_size: int | None = option("count", "Slots of states, whatever the memory.")
    max_total_tokens: int | None = option("count", "Upper bound of the pool's tokens.")
    chunked_prefill_size: int | None = option(
        "count",
        "Tokens of a prefill chunk (default: by the GPU's memory; -1: prompts are not divided).",
        lowest=-1,
    )
    cuda_graph_max_bs: int | None = option(
        "count", "Requests of the largest decode graph (default: by the GPU's memory)."
    )
    disaggregation_mode: str = option(
        "word",
        "What the server does where prompts and answers have servers of their own.",
        "null",
        choices=ROLES,
    )
    max_prefill_tokens: int | None = option("count", "Tokens of all prompts of a prefill (default: 16,384).")
    enable_mixed_chunk: bool = option("flag", "Answers beside the prompts of a prefill.", False)
    schedule_policy: str = option("word", "Order of waiting requests.", "fcfs", choices=SCHEDULE_POLICIES)
    schedule_conservativeness: Fraction | None = option(
        "ratio", "How much of its answer a running request is expected to make."
    )
    radix_eviction_policy: str = option(
        "word", "What the radix cache forgets first.", "lru", choices=EVICTION_POLICIES
    )
    speculative_eagle_topk: int | None = option(
        "count", "Candidates that a draft step keeps: a tree of drafts (default: 1, a chain)."
    )
    speculative_num_draft_tokens: int | None = option(
        "count", "Tokens that one step verifies, of a tree (a chain: its steps and one)."
    )
    enable_two_batch_overlap: bool = option("flag", "A batch runs in two halves that overlap.", False)
    draft_layers: int | None = option(
        "count", "Layers of the draft model (default: the model's own prediction layers)."
    )
    dsa_prefill_backend: str | None = option(
        "word", "Prefill backend of sparse attention.", choices=DSA_BACKENDS
    )
    dsa_decode_backend: str | None = option(
        "word", "Decode backend of sparse attention.", choices=DSA_BACKENDS
    )
    enable_dp_attention: bool = option("flag", "Attention data-parallel over --dp inside --tp.", False)
    attn_dp_size: int | None = option("count", "The same in one option: attention groups inside --tp.")
    enable_dp_lm_head: bool = option("flag", "Head divided inside an attention group.", False)
    ep_size: int | None = option("count", "Ranks among which whole experts are divided (default: 1).")
    moe_a2a_backend: str | None = option("word", "All-to-all of experts: sets ep_size.", choices=A2A_BACKENDS)
    moe_dense_tp_size: int | None = option("count", "1: perceptrons without experts whole on each rank.")
    ep_num_redundant_experts: int | None = option(
        "count", "Copies of experts beside the model's own.", lowest=0
    )
    max_loras_per_batch: int | None = option("count", "Adapters in one batch: slots on the GPU (default: 8).")


OPTIONS = options_of(SglangOptions)
