"""Changes between vLLM releases, as one table of rules.

Read in the wheels of vllm-project/vllm 0.8.5 to 0.33.0 (every minor release), and held to what their own
planners answer (docs/engines.md); a rule is dated to the first release in which it was seen.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.engines.base import parse_version
from kvplan.record import record, replace

NOT_ASKED: frozenset[str] = frozenset()
"""Releases whose own planner was not asked (docs/engines.md): their rules were read only."""
VERSIONS: tuple[str, ...] = tuple(f"0.{minor}" for minor in range(8, 34))


@record()
class Rules:
    """The rules of one release.

    tokens_from_concurrency: "KV cache size" is int(concurrency * max_model_len), else blocks // groups *
    smallest block size; tokens_times_dcp: that figure times the DCP size; null_block_checked: the start-up
    check plans without block 0; in_flight_batches: windows are charged for every batch in flight, not one;
    hybrid_groups: windows and full attention have tables of their own; large_gpu_row: the batch defaults of
    GPUs of 160 GiB; mamba_blocks: state-space layers live in the paged pool; default_utilization_percent: of
    GPU memory; scaled_yarn: max_position_embeddings of a YaRN config is its length, else the original times
    the factor (config/model.py, _get_and_verify_max_len).

    States: hybrid_caching, prefix caching is on by default where attention and states meet
    (engine/arg_utils.py); every_state, with it a class that supports it keeps a state a block
    (models/config.py, MambaModelConfig); mamba2_checkpoint, gdn_checkpoint: such layers reserve a state for
    their prefill checkpoint; conv_drafts: short convolutions have room for draft tokens; latent_step: blocks
    of latents beside states are whole 128s (platforms/interface.py).

    Blocks: common_block, of a size that all backends take, else the first one's; flat_rows, whole rows of a
    latent's kernel apart (_uses_flat_kv_cache, _get_kv_cache_bytes_per_block); aligned_kernels, beside
    states a multiple of every backend's; unquantized_layers, quantized pages grow over those left in 16 bit;
    window_blocks, what a windowed layer takes: the model's block size, the smallest of its kernel, or the
    largest that fits (layers/attention/attention.py).

    latent_kernel: what MLA's kernel makes of a block size before 0.18 (platforms/cuda.py,
    check_and_update_config; `cache_layout.older_block_sizes`); states_step: beside states a block is whole
    kernel blocks, whatever size the user gave (models/config.py, HybridAttentionMambaModelConfig);
    state_at_end: a state of the last blocks is kept by classes that cannot keep all.

    gdn_state_dtype: GDN heeds --mamba-ssm-cache-dtype; bfloat16_states: states may be asked for in it.
    pure_states_blocks: classes of states alone keep one of every block too.

    Groups (v1/core/kv_cache_utils.py): pads, pages that do not divide the largest are padded: none,
    those of every attention layer, or all but latents; pads_states, those of states; full_fallback,
    latents beside windows are allocated in full where pages cannot be equal; merged_kinds, kinds that
    one spec can stand for share a group; promoted_merge, a window allocated in full is the same as a
    full layer; promoted_quantized, a quantized one too; group_slack_percent, kinds whose counts of
    layers differ by less share the largest as the size of a group; promoted_blocks, it takes the full
    layers' block size; promotes_latents, windows over latents can be allocated in full; packed_blocks,
    pages of many sizes lie side by side in one block; latent_blocks, what a block of DeepSeek-V4 held before
    that: as many of each page as the group with most layers has ("tuples"), as any group has of that page
    ("pages"), or the largest group; until it was that, pages of windows were padded to those of the full
    layers, and concurrency counted bytes in pages of the first layer; ring_in_keys, GLM-5.3-Flash's rings lie
    in its index keys' pages and its states in those of its latents, without rows between blocks
    (_get_kv_cache_groups_glm5_next); ring_for_drafts, its rings have
    room for the tokens of drafts; whole_rows, blocks of its and of dots3's latents lie whole rows of the
    kernel apart.

    Classes: image_layers_full, transformers' Mllama is run with its own layers for text only, every one of
    them full attention; head_dim_stated, Cohere2 heeds head_dim; mimo_cache_dtype,
    MiMo-V2 heeds the cache's dtype; latent_words: DeepSeek-V4 keeps records
    without being asked for fp8; own_kimi_length: Kimi Linear's config class has a length of its own;
    replicated_unplanned: a class of transformers without a plan of its division is copied to every rank;
    sparse_fp8_on_sm100: GLM's sparse latents are fp8 there by default; pooled_fp8_on_sm100: GLM-5.3-Flash's;
    v41_whole_rows: there a block of DeepSeek-V4.1 is whole rows of windows and of latents;
    one_float: a cache asked for in 16 bit has the model's dtype; float_words: one may be asked for;
    short_longrope: longrope starts at its original length; small_index_keys: DeepSeek-V4's index keys in
    mxfp4 take their own room; rotation_handed_on: GPT-J's own rotation is taken for a scaling;
    borrowed_indexers: a layer that borrows another's choice of tokens keeps no index keys;
    hybrid_turboquant: TurboQuant runs beside states; undeclared_e5m2: compressed-tensors without a scheme of
    the cache keeps one in fp8_e5m2; packed_windows: windows in int4_per_token_head take
    half a byte a number (before, v1/kv_cache_interface.py, SlidingWindowSpec had one byte).

    Backends: sparse_flash: FLASH_ATTN_MLA_SPARSE; diff_triton: TRITON_ATTN_DIFFKV; prefix_triton:
    TRITON_FLASH_ATTN; wide_pages: FlashAttention 4's pages for heads of 256; triton_checks,
    latent_checks: Triton refuses fp8 on GPUs before 8.9, for K and V and for latents; latent_fp8: where
    latents may be fp8 at all ("hopper": Triton's kernel takes 16 bit only); sparse_fp8: any fp8 word gives
    sparse attention its records; dcp_backends: a backend that cannot divide a request's tokens among ranks is
    not chosen where decode context parallelism is asked for; flashinfer_first: on 10.x FlashInfer is tried
    before the others (read in 0.20 and later); grouped_pages: its pages there are of up to 1,024 tokens.
    runners: the release whose rules choose the model runner (`kvplan.engines.vllm.start.runner`); asked where
    batches in flight count; lookups_async: the second runner schedules ahead whatever proposes the drafts
    (config/vllm.py); bounded_by_draft: its max_model_len is at most the draft's.
    gemma4_whole_items, items_raise_batch: `encoder_profile.whole_items`; prefix_for_items: tokens of an
    image see each other only where images are served (config/model.py, _supports_multimodal_for_mm_prefix).
    dflash_windows: layers of a DFlash draft have windows (model_executor/models/qwen3_dflash.py).
    performance_modes: ``throughput`` doubles what of the batch is not given (engine/arg_utils.py), and
    ``interactivity`` has CUDA graphs of every size up to 32.
    """

    tokens_from_concurrency: bool = False
    tokens_times_dcp: bool = False
    null_block_checked: bool = False
    in_flight_batches: bool = False
    hybrid_groups: bool = False
    large_gpu_row: bool = False
    mamba_blocks: bool = False
    default_utilization_percent: int = 90
    scaled_yarn: bool = False
    hybrid_caching: bool = False
    every_state: bool = False
    every_state_with_drafts: bool = False
    conv_drafts: bool = False
    mamba2_checkpoint: bool = False
    gdn_checkpoint: bool = False
    latent_step: bool = False
    common_block: bool = False
    flat_rows: bool = False
    aligned_kernels: bool = False
    unquantized_layers: bool = False
    window_blocks: str = "shared"
    pads: str = "none"
    pads_states: bool = False
    full_fallback: bool = False
    merged_kinds: bool = False
    promoted_merge: bool = True
    promoted_quantized: bool = True
    group_slack_percent: int = 0
    first_group_checked: bool = False
    stage_pages: bool = False
    slices: bool = True
    plain_concurrency: bool = True
    pure_states_blocks: bool = False
    float_words: bool = False
    latent_fp8: str = "any"
    sparse_fp8: bool = True
    short_longrope: bool = False
    latent_kernel: str = "hopper"
    states_step: bool = True
    state_at_end: bool = False
    gdn_state_dtype: bool = False
    promoted_blocks: bool = False
    promotes_latents: bool = True
    packed_blocks: bool = False
    latent_blocks: str = "tuples"
    ring_in_keys: bool = True
    whole_rows: bool = False
    ring_for_drafts: bool = False
    sparse_flash: bool = False
    diff_triton: bool = False
    prefix_triton: bool = False
    triton_checks: bool = False
    latent_checks: bool = False
    runners: str = "0.26"
    image_layers_full: bool = False
    head_dim_stated: bool = False
    mimo_cache_dtype: bool = False
    wide_pages: bool = False
    latent_words: bool = False
    one_float: bool = False
    replicated_unplanned: bool = False
    sparse_fp8_on_sm100: bool = False
    pooled_fp8_on_sm100: bool = False
    v41_whole_rows: bool = False
    own_kimi_length: bool = False
    small_index_keys: bool = False
    rotation_handed_on: bool = False
    dcp_backends: bool = False
    lookups_async: bool = False
    bounded_by_draft: bool = False
    bfloat16_states: bool = False
    borrowed_indexers: bool = False
    hybrid_turboquant: bool = False
    flashinfer_first: bool = False
    grouped_pages: bool = False
    undeclared_e5m2: bool = False
    packed_windows: bool = False
    gemma4_whole_items: bool = False
    items_raise_batch: bool = False
    prefix_for_items: bool = False
    dflash_windows: bool = False
    performance_modes: bool = False


_CHANGES: tuple[tuple[str, dict[str, bool | int | str]], ...] = (
    ("0.9", {"hybrid_groups": True, "plain_concurrency": False}),
    (
        "0.10",
        {"mamba_blocks": True, "tokens_times_dcp": True, "latent_kernel": "exact"},
    ),
    (
        "0.11",
        {
            "image_layers_full": True,
            "latent_kernel": "multiples",
            "latent_fp8": "hopper",
            "every_state": True,
            "slices": False,
            "short_longrope": True,
        },
    ),
    ("0.12", {"group_slack_percent": 25, "pure_states_blocks": True, "rotation_handed_on": True}),
    ("0.14", {"first_group_checked": True}),
    ("0.15", {"latent_kernel": "flashinfer", "state_at_end": True, "float_words": True}),
    ("0.17", {"stage_pages": True, "gdn_state_dtype": True, "performance_modes": True}),
    (
        "0.18",
        {"latent_kernel": "none", "group_slack_percent": 50, "latent_fp8": "any", "sparse_fp8": False},
    ),
    ("0.19", {"first_group_checked": False}),
    (
        "0.20",
        {
            "default_utilization_percent": 92,
            "tokens_from_concurrency": True,
            "tokens_times_dcp": False,
            "promoted_quantized": False,
            "states_step": False,
            "flashinfer_first": True,
            "gemma4_whole_items": True,
        },
    ),
    ("0.21", {"promoted_quantized": True, "hybrid_turboquant": True}),
    ("0.22", {"every_state_with_drafts": True, "bfloat16_states": True, "items_raise_batch": True}),
    ("0.23", {"latent_blocks": "pages"}),
    (
        "0.24",
        {
            "borrowed_indexers": True,
            "undeclared_e5m2": True,
            "pads": "attention",
            "promoted_merge": False,
            "triton_checks": True,
            "diff_triton": True,
        },
    ),
    (
        "0.25",
        {
            "replicated_unplanned": True,
            "grouped_pages": True,
            "sparse_flash": True,
            "unquantized_layers": True,
            "window_blocks": "smallest",
            "dflash_windows": True,
        },
    ),
    (
        "0.26",
        {
            "in_flight_batches": True,
            "pads_states": True,
            "latent_checks": True,
        },
    ),
    (
        "0.27",
        {
            "latent_step": True,
            "full_fallback": True,
            "merged_kinds": True,
            "promoted_blocks": True,
            "latent_blocks": "largest",
            "own_kimi_length": True,
            "small_index_keys": True,
            "runners": "0.27",
            "prefix_for_items": True,
        },
    ),
    (
        "0.28",
        {
            "large_gpu_row": True,
            "packed_windows": True,
            "hybrid_caching": True,
            "every_state": False,
            "promoted_merge": True,
            "runners": "0.28",
        },
    ),
    (
        "0.29",
        {
            "null_block_checked": True,
            "pads": "not latents",
            "conv_drafts": True,
            "packed_blocks": True,
            "runners": "0.29",
            "head_dim_stated": True,
            "wide_pages": True,
        },
    ),
    (
        "0.30",
        {
            "window_blocks": "largest",
            "prefix_triton": True,
            "scaled_yarn": True,
            "latent_words": True,
            "dcp_backends": True,
        },
    ),
    (
        "0.31",
        {
            "common_block": True,
            "runners": "0.31",
            "flat_rows": True,
            "ring_for_drafts": True,
            "promotes_latents": False,
        },
    ),
    (
        "0.32",
        {
            "runners": "0.32",
            "flat_rows": False,
            "ring_in_keys": False,
            "whole_rows": True,
            "sparse_fp8_on_sm100": True,
            "aligned_kernels": True,
            "mamba2_checkpoint": True,
            "mimo_cache_dtype": True,
        },
    ),
    (
        "0.33",
        {
            "runners": "0.33",
            "gdn_checkpoint": True,
            "one_float": True,
            "lookups_async": True,
            "bounded_by_draft": True,
            "pooled_fp8_on_sm100": True,
            "v41_whole_rows": True,
        },
    ),
)


@lru_cache(maxsize=64)
def rules_of(version: str) -> Rules:
    """The rules in force in a release: those of its newest patch."""
    rules, asked = Rules(), parse_version(version)[:2]
    for since, changes in _CHANGES:
        if asked >= parse_version(since):
            rules = replace(rules, **changes)  # type: ignore[arg-type]
    return rules
