"""Changes between vLLM releases: a row a rule (`kvplan.engines.release_rules`).

Read in the wheels of vllm-project/vllm 0.8.5 to 0.33.0 (every minor release), and held to what their own
planners answer (docs/engines.md), but for rows that say ``asked=False``. A rule is dated to the first release
in which it was seen; files are below ``vllm/``.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.engines.base import Version
from kvplan.engines.release_rules import ReleaseRules, flag, steps

NOT_ASKED: frozenset[str] = frozenset()
"""Releases whose own planner was not asked (docs/engines.md): their rules were read only."""
VERSIONS: tuple[str, ...] = tuple(f"0.{minor}" for minor in range(8, 34))

_GROUPS = "v1/core/kv_cache_utils.py"
_ARGS = "engine/arg_utils.py"
_CONFIG = "config/vllm.py"
_MODEL = "config/model.py"
_DRAFTS = "config/speculative.py"
_STATES = "model_executor/models/config.py"
_PLATFORM = "platforms/interface.py"
_CUDA = "platforms/cuda.py"
_ROCM = "platforms/rocm.py"
_LAYER = "model_executor/layers/attention/attention.py"
_LATENT = "model_executor/layers/attention/mla_attention.py"
_BACKENDS = "v1/attention/backends/"
_FLASHINFER = _BACKENDS + "flashinfer.py"
_RUNNER = "v1/worker/gpu_model_runner.py"
_WORKER = "v1/worker/gpu_worker.py"
_EXPERTS = "model_executor/layers/fused_moe/"
_QUANTIZATION = "model_executor/layers/quantization/"
_GROUPED_KEYS = "models/qwen4_exp/nvidia/qsa.py"
_GLM5_GROUPS = _GROUPS + ", _get_kv_cache_groups_glm5_next"


class Rules(ReleaseRules):
    """The rules of one release: those of its newest patch."""

    # fmt: off
    # The start: arguments, defaults, lengths.
    default_utilization_percent = steps("--gpu-memory-utilization by default", "config/cache.py", 90,
        ("0.20", 92), asked=False)
    large_gpu_row = flag("GPUs of 160 GiB have a row of their own in the batch's defaults", _ARGS,
        since="0.28")
    chunks_always = flag("prompts are divided whatever is asked", _ARGS + ", _set_default_args_v1",
        until="0.11", asked=False)
    performance_modes = flag("throughput doubles what of the batch is not given; interactivity has CUDA "
        "graphs of every size up to 32", _ARGS, since="0.17", asked=False)
    scaled_yarn = flag(
        "max_position_embeddings of a YaRN config is its length, before the original times the factor",
        _MODEL + ", _get_and_verify_max_len", since="0.30")
    short_longrope = flag("longrope starts at its original length", _MODEL, since="0.11")
    own_kimi_length = flag("Kimi Linear's config class has a length of its own",
        "transformers_utils/configs/kimi_linear.py", since="0.27")
    hybrid_caching = flag("prefix caching is on by default where attention and states meet", _ARGS,
        since="0.28")
    every_state = flag("with prefix caching a class that supports it keeps a state a block",
        _STATES + ", MambaModelConfig", since="0.11", until="0.28")
    every_state_asked = flag("--mamba-cache-mode all keeps a state a block of a class that supports it",
        _STATES + ", MambaModelConfig", until="0.32", asked=False)
    skips_latent = flag("--kv-cache-dtype-skip-layers names layers of latent attention too", _LATENT,
        since="0.26", asked=False)
    every_state_with_drafts = flag("beside drafts too", _STATES + ", MambaModelConfig", since="0.22")
    state_at_end = flag("classes that cannot keep every state keep that of the last blocks", _STATES,
        since="0.15")
    dflash_windows = flag("layers of a DFlash draft have windows", "model_executor/models/qwen3_dflash.py",
        since="0.25", asked=False)
    lookups_async = flag("the second runner schedules ahead whatever proposes the drafts", _CONFIG,
        since="0.33", asked=False)
    bounded_by_draft = flag("its max_model_len is at most the draft's", _CONFIG, since="0.33", asked=False)
    draft_on_one_stage = flag("a draft has a parallel configuration of one stage",
        _DRAFTS + ", create_draft_parallel_config", since="0.30")
    eagle3_stages = flag("the second runner runs EAGLE-3 beside a pipeline", _CONFIG, since="0.30",
        asked=False)
    dflash_kinds = flag("a DFlash draft with layers of both kinds is run by the second runner alone",
        _CONFIG + ", _dflash_needs_multi_kv_group", since="0.26", asked=False)
    context_ranks = flag("some backend takes prefill context parallelism (#47846)", "v1/worker/cp_utils.py",
        since="0.25", asked=False)
    context_ranks_known = flag("its rules are known here", "v1/worker/gpu/pcp_manager.py", since="0.32")

    # KV connectors.
    connector_ends_hybrid = steps("when --kv-transfer-config turns the hybrid manager off: always, where "
        "nobody asked for it, or where its connector does not support it",
        _CONFIG + ", disable_hybrid_kv_cache_manager", "always", ("0.13", "unasked"), ("0.22", "unsupported"))
    events_end_hybrid = flag("--kv-events-config turns it off", _CONFIG, since="0.9", until="0.20")
    offload_decides = flag("--kv-offloading-size is read before that is settled",
        _CONFIG + ", _post_init_kv_transfer_config", since="0.22", asked=False)
    offload_native = flag("a backend of it need not be named", "config/cache.py, kv_offloading_backend",
        since="0.14", asked=False)
    lmcache_offload = steps("the connector of --kv-offloading-backend lmcache",
        _CONFIG + ", _post_init_kv_transfer_config", "LMCacheConnectorV1", ("0.23", "LMCacheMPConnector"),
        asked=False)
    hybrid_checked = flag("a connector that does not support the hybrid manager stops the start under it",
        "distributed/kv_transfer/kv_connector/factory.py, create_connector", since="0.11", asked=False)
    layerwise_piecewise = flag("a connector that works layer by layer leaves piecewise graphs alone",
        _CONFIG + ", requires_piecewise_for_cudagraph", since="0.17", asked=False)

    # Classes.
    image_layers_full = flag(
        "transformers' Mllama is run with its layers for text, every one of them full attention",
        "model_executor/models/transformers/base.py", since="0.11")
    head_dim_stated = flag("Cohere2 heeds head_dim", "model_executor/models/commandr.py", since="0.29")
    mimo_cache_dtype = flag("MiMo-V2 heeds the cache's dtype", "model_executor/models/mimo_v2.py",
        since="0.32", asked=False)
    latent_words = flag("DeepSeek-V4 keeps records without being asked for fp8",
        "models/deepseek_v4/attention.py", since="0.30")
    replicated_unplanned = flag(
        "a class of transformers without a plan of its division is copied to every rank",
        "model_executor/models/transformers/base.py", since="0.25")
    rotation_handed_on = flag("GPT-J's own rotation is taken for a scaling", "model_executor/models/gpt_j.py",
        since="0.12")
    borrowed_indexers = flag("a layer that borrows another's choice of tokens keeps no index keys",
        "model_executor/models/deepseek_v2.py", since="0.24", asked=False)
    v41_on_sm100 = flag("DeepSeek-V4.1's cache on 10.x is known here",
        "models/deepseek_v41/", since="0.31", asked=False)
    grouped_fp8 = flag("Qwen4-Exp's indexed attention keeps its cache in fp8",
        _GROUPED_KEYS, since="0.31", asked=False)
    any_chosen_groups = flag("how many groups it chooses is free",
        "models/qwen4_exp/", since="0.32", asked=False)
    nameless_text = flag(
        "Qwen3-VL's language model has no architecture, which pipeline stages ask for (#43271)",
        "model_executor/models/qwen3_vl.py", since="0.20", until="0.30")
    nameless_latents = flag("decode context parallelism asks for it too", "model_executor/models/qwen3_vl.py",
        since="0.28")
    encoder_heads_read = flag("how encoders are divided was read", "model_executor/models/", since="0.20",
        asked=False)
    backend_names_read = flag("the names of its backends were read",
        _BACKENDS + "registry.py", since="0.20", asked=False)

    # Formats.
    float_words = flag("a cache may be asked for in 16 bit", _BACKENDS, since="0.15")
    one_float = flag("a cache asked for in 16 bit has the model's dtype", _LAYER, since="0.33")
    latent_fp8 = steps(
        "where latents may be fp8: any GPU, or Hopper's and Blackwell's kernels (Triton's takes 16 bit only)",
        _CUDA, "any", ("0.11", "hopper"), ("0.18", "any"), asked=False)
    sparse_fp8 = flag("any fp8 word gives sparse attention its records", _CUDA, until="0.18", asked=False)
    sparse_fp8_on_sm100 = flag("GLM's sparse latents are fp8 by default on 10.x", _STATES, since="0.32")
    pooled_fp8_on_sm100 = flag("GLM-5.3-Flash's are too", _STATES, since="0.33", asked=False)
    small_index_keys = flag("DeepSeek-V4's index keys in mxfp4 take their own room",
        _BACKENDS + "mla/indexer.py", since="0.27", asked=False)
    hybrid_turboquant = flag("TurboQuant runs beside states", _ARGS, since="0.21")
    undeclared_e5m2 = flag("compressed-tensors without a scheme of the cache keeps one in fp8_e5m2", _LAYER,
        since="0.24", asked=False)
    packed_windows = flag("windows in int4_per_token_head take half a byte a number, before one",
        "v1/kv_cache_interface.py, SlidingWindowSpec", since="0.28", asked=False)
    bfloat16_states = flag("states may be asked for in bfloat16", "config/cache.py, MambaDType", since="0.22")
    gdn_state_dtype = flag("GDN heeds --mamba-ssm-cache-dtype", _STATES, since="0.17")
    grouped_experts_whole = flag("compressed-tensors' experts are held to whole groups",
        _QUANTIZATION + "compressed_tensors/compressed_tensors_moe/", since="0.24", asked=False)
    refined_expert_blocks = flag("scales of FP8 experts are repeated over smaller blocks",
        _EXPERTS + "oracle/fp8.py, refine_fp8_moe_block_shape", since="0.29", asked=False)
    padded_expert_blocks = flag("kernels asked for by name pad parts of blocks",
        _EXPERTS + "oracle/fp8.py, pad_tp_shard_to_weight_blocks", since="0.31", asked=False)
    bitsandbytes_plugin = flag("bitsandbytes is a package of its own (#43529)", _QUANTIZATION + "__init__.py",
        since="0.28", asked=False)
    cuda_13 = flag("wheels and images are built by CUDA 13, without kernels for GPUs before 7.5 (#39878)",
        "CMakeLists.txt", since="0.20", asked=False)

    # Attention backends and their blocks.
    flashinfer_first = flag("on 10.x FlashInfer is tried before the others", _CUDA, since="0.20")
    flashinfer_own_kernels = steps("major capabilities whose FlashInfer has TRT-LLM's or XQA's kernels: "
        "sinks are taken, one workspace is shared", _FLASHINFER + ", supports_sink; utils/flashinfer.py",
        (10,), ("0.25", (10, 9)), ("0.29", (10, 9, 12)), asked=False)
    grouped_pages = flag("FlashInfer's pages on 10.x are of up to 1,024 tokens",
        _FLASHINFER, since="0.25", asked=False)
    wide_pages = flag("FlashAttention 4 has pages for heads of 256", _BACKENDS + "flash_attn.py",
        since="0.29", asked=False)
    sparse_flash = flag("there is FLASH_ATTN_MLA_SPARSE",
        _BACKENDS + "registry.py", since="0.25", asked=False)
    diff_triton = flag("there is TRITON_ATTN_DIFFKV", _BACKENDS + "registry.py", since="0.24")
    prefix_triton = flag("there is TRITON_FLASH_ATTN", _BACKENDS + "registry.py", since="0.30", asked=False)
    triton_checks = flag("Triton refuses fp8 K and V on GPUs before 8.9", _BACKENDS + "triton_attn.py",
        since="0.24")
    latent_checks = flag("and latents", _BACKENDS + "mla/triton_mla.py", since="0.26", asked=False)
    dcp_backends = flag(
        "a backend that cannot divide a request's tokens is not chosen under decode context parallelism",
        _CUDA, since="0.30", asked=False)
    latent_kernel = steps("what MLA's kernel makes of a block size (`cache_layout.older_block_sizes`)",
        _CUDA + ", check_and_update_config", "hopper", ("0.10", "exact"), ("0.11", "multiples"),
        ("0.15", "flashinfer"), ("0.18", "none"))
    rocm_asked = flag("the engine was asked on AMD's GPUs", _ROCM, since="0.20", asked=False)
    rocm_order = steps("AMD's backends of layers with K and V, in the order in which they are tried",
        _ROCM + ", _get_backend_priorities", ("TRITON_ATTN",),
        ("0.19", ("ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN")),
        ("0.20", ("ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN", "TURBOQUANT")),
        ("0.32", ("ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN", "TURBOQUANT", "ULTRAQUANT")))
    rocm_names_read = flag("their backends have rows in data/backends.tsv", _ROCM, since="0.11", asked=False)
    rocm_prefers = flag("a backend's own block size counts, before 16",
        _PLATFORM + ", update_block_size_for_backend", since="0.20", asked=False)
    rocm_encoders_apart = flag("ROCM_ATTN serves no layer of a model with an encoder",
        _ROCM, since="0.26", asked=False)
    rocm_sparse = flag("sparse attention runs on AMD's GPUs", _ROCM, since="0.12", asked=False)
    rocm_sparse_blocks = flag("there its blocks may have more than one token",
        _ROCM, since="0.18", asked=False)
    rocm_sparse_own = flag("there sparse layers name their backend: an asked one is not heeded",
        "models/deepseek_v32/amd/", since="0.30", asked=False)
    rocm_sparse_e5m2 = flag("there fp8_e5m2 is taken", "models/deepseek_v32/amd/", since="0.31", asked=False)
    rocm_connectors = flag("ROCM_ATTN serves no KV connector", _ROCM + ", _get_backend_priorities",
        since="0.23", asked=False)
    rocm_packed_free = flag(
        "TurboQuant's layers are left to the platform where the named backend does not take them", _ROCM,
        since="0.28")

    # Block sizes.
    common_block = flag("blocks are of a size that all backends take, before of the first one's",
        "v1/worker/utils.py", since="0.31", asked=False)
    flat_rows = flag("blocks lie whole rows of a latent's kernel apart",
        _BACKENDS + "mla/, _uses_flat_kv_cache, _get_kv_cache_bytes_per_block", since="0.31", until="0.32")
    whole_rows = flag("GLM-5.3-Flash's and dots3's do", "models/glm5next/", since="0.32", asked=False)
    v41_whole_rows = flag("DeepSeek-V4.1's are whole rows of windows and of latents", "models/deepseek_v41/",
        since="0.33", asked=False)
    aligned_kernels = flag("beside states a block is a multiple of every backend's",
        _PLATFORM, since="0.32", asked=False)
    states_step = flag("beside states a block is whole kernel blocks, whatever size the user gave",
        _STATES + ", HybridAttentionMambaModelConfig", until="0.20")
    latent_step = flag("blocks of latents beside states are whole 128s", _PLATFORM, since="0.27")
    unquantized_layers = flag("quantised pages grow over those left in 16 bit", _LAYER, since="0.25")
    window_blocks = steps(
        "a windowed layer's block: the model's, the smallest of its kernel, or the largest that fits", _LAYER,
        "shared", ("0.25", "smallest"), ("0.30", "largest"))
    large_compressed_blocks = flag(
        "DeepSeek-V4's blocks of more than 256 tokens have the bytes of their pages; later not known here",
        _GROUPS, until="0.32", asked=False)

    # States.
    mamba_blocks = flag("state-space layers live in the paged pool", _RUNNER + ", get_kv_cache_spec",
        since="0.10")
    pure_states_blocks = flag("classes of states alone keep one of every block too", _STATES, since="0.12")
    sparse_retention = flag("of windows and states only what a later request resumes at stays in the prefix "
        "cache", "config/cache.py, prefix_cache_retention_interval", since="0.30", asked=False)
    conv_drafts = flag("short convolutions have room for draft tokens",
        "model_executor/layers/mamba/short_conv.py", since="0.29", asked=False)
    mamba2_checkpoint = flag("Mamba-2 reserves a state for its prefill checkpoint",
        "model_executor/layers/mamba/mamba_mixer2.py", since="0.32")
    gdn_checkpoint = flag("so does GDN", "model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
        since="0.33")

    # Groups and their pages.
    hybrid_groups = flag("windows and full attention have tables of their own", _GROUPS, since="0.9")
    slices = flag("groups are consecutive layers of a kind, and every stage has its own", _GROUPS,
        until="0.11")
    group_slack_percent = steps(
        "kinds whose counts of layers differ by less share the largest as the size of a group",
        _GROUPS + ", _get_kv_cache_groups_uniform_page_size", 0, ("0.12", 25), ("0.18", 50))
    pads = steps("whose pages are padded that do not divide the largest: none, every attention layer's, all "
        "but latents'", _GROUPS, "none", ("0.24", "attention"), ("0.29", "not latents"))
    pads_states = flag("pages of states are", _GROUPS, since="0.26")
    full_fallback = flag("latents beside windows are allocated in full where pages cannot be equal", _GROUPS,
        since="0.27", asked=False)
    merged_kinds = flag("kinds that one spec can stand for share a group", _GROUPS, since="0.27", asked=False)
    promoted_merge = steps("a window allocated in full is the same as a full layer", _GROUPS, True,
        ("0.24", False), ("0.28", True))
    promoted_quantized = steps("a quantised one too", _GROUPS, True, ("0.20", False), ("0.21", True))
    promoted_blocks = flag("it takes the full layers' block size", _GROUPS, since="0.27")
    promotes_latents = flag("windows over latents can be allocated in full",
        _GROUPS, until="0.31", asked=False)
    packed_blocks = flag("pages of many sizes lie side by side in one block", _GROUPS, since="0.29")
    latent_blocks = steps("what a block of DeepSeek-V4 held before that: as many of each page as the group "
        "with most layers has (tuples), as any group has of it (pages), or the largest group; until then "
        "pages of windows were padded to those of the full layers, and concurrency counted bytes in pages "
        "of the first layer", _GROUPS, "tuples", ("0.23", "pages"), ("0.27", "largest"))
    ring_in_keys = flag(
        "GLM-5.3-Flash's rings lie in its index keys' pages and its states in those of its latents",
        _GLM5_GROUPS, until="0.32")
    ring_for_drafts = flag("its rings have room for the tokens of drafts", _GLM5_GROUPS, since="0.31")
    stage_pages = flag("a stage pays for its own pages, before for the whole model's", _GROUPS, since="0.17")

    # What is counted and printed.
    plain_concurrency = flag("concurrency is blocks · block size / max_model_len", _GROUPS, until="0.9")
    tokens_from_concurrency = flag(
        '"KV cache size" is int(concurrency · max_model_len), before blocks // groups · smallest block size',
        _GROUPS, since="0.20")
    tokens_times_dcp = flag("that figure is times the DCP size",
        _GROUPS, since="0.10", until="0.20", asked=False)
    first_group_checked = flag("the start-up check counts the first group alone", _GROUPS, since="0.14",
        until="0.19")
    null_block_checked = flag("it plans without block 0", _GROUPS, since="0.29")
    in_flight_batches = flag("windows are charged for every batch in flight, not one",
        "v1/kv_cache_interface.py", since="0.26")
    checked_state_graphs = flag("a start stops with fewer blocks of states than max_num_seqs (#38270)",
        "config/compilation.py, resolve_cudagraph_mode_and_sizes", since="0.20", asked=False)

    # Images, videos and sounds.
    gemma4_whole_items = flag("Gemma 4's items are scheduled whole",
        "transformers_utils/model_arch_config_convertor.py, Gemma4ModelArchConfigConvertor", since="0.20",
        asked=False)
    items_raise_batch = flag("the largest such item raises the default of a batch",
        _ARGS + ", _get_min_mm_batched_tokens", since="0.22", asked=False)
    rocm_whole_items = flag("they are scheduled whole on AMD's GPUs too", _ROCM, since="0.31", asked=False)
    prefix_for_items = flag("tokens of an image see each other only where images are served",
        _MODEL + ", _supports_multimodal_for_mm_prefix", since="0.27", asked=False)
    second_runner_encodes = flag("the second runner profiles the encoder", "v1/worker/gpu/model_runner.py",
        since="0.27", asked=False)
    items_alone = flag("the item that is run is made as if its modality were the only one", _RUNNER,
        since="0.9", asked=False)
    items_a_prompt = flag(
        "items are those of prompts of max_model_len, whole in the budget; before, one more than whole",
        _RUNNER, since="0.10", asked=False)
    items_unlimited = flag(
        "a prompt may have 999 items by default, before one; dummy items are of max_model_len",
        "multimodal/profiling.py", since="0.11", asked=False)
    items_kept_together = flag("outputs of all dummy items are kept at once", _RUNNER, since="0.11",
        until="0.13", asked=False)
    video_frames = steps("frames of Qwen2-VL's dummy video", "model_executor/models/qwen2_vl.py", 16,
        ("0.11", 14), asked=False)
    squarest_images = flag("dummy images have as many patches as the limit allows, before the largest square",
        "model_executor/models/qwen2_vl.py, get_image_size_with_most_features", since="0.13", asked=False)
    qwen3_video_padded = flag("Qwen3-VL's video is counted at 12.5 times its tokens",
        "model_executor/models/qwen3_vl.py", until="0.13", asked=False)
    pixtral_breaks = flag("a row of Pixtral's dummy image ends with a token",
        "model_executor/models/pixtral.py", until="0.13", asked=False)
    pixtral_masked = flag("Pixtral's torch attention takes a mask of all images",
        "model_executor/models/pixtral.py", until="0.29", asked=False)
    xformers = flag("vLLM asks for xFormers, which takes none", "requirements/cuda.txt", until="0.12",
        asked=False)
    glm_frames_of_16 = flag("GLM-4V's images are counted as 16 frames", "model_executor/models/glm4_1v.py",
        until="0.17", asked=False)
    gemma4_options = flag("Gemma 4's dummy items heed the options that were given",
        "model_executor/models/gemma4_mm.py", since="0.21", asked=False)
    gemma4_chunks = flag("Gemma 4's frames run together, as many as fit a tenth of the GPU",
        "model_executor/models/gemma4_mm.py, _encoder_chunk", since="0.22", asked=False)
    gate_kept = flag("gate and up of a vision encoder's MLP are alive beside their product",
        "model_executor/models/qwen2_5_vl.py", until="0.16", asked=False)
    rotated_in_float32 = flag("a vision encoder's queries and keys are rotated in float32",
        "model_executor/models/qwen2_vl.py, apply_rotary_pos_emb_vision", until="0.13", asked=False)

    # Memory: weights.
    unserved_encoder_left = flag("an encoder that serves nothing is not loaded",
        "model_executor/models/interfaces.py, _mark_tower_model", since="0.15", asked=False)
    tables_on_host = flag("tables of n-grams lie in pinned memory of the CPU", "config/engram.py",
        since="0.30", asked=False)
    loads_unsplit = flag("weights are loaded with max_split_size_mb at 20 (#41268)",
        _WORKER + ", _scoped_allocator_max_split", since="0.21", asked=False)
    consumed_counts = flag("all that a start took counts, by mem_get_info",
        "utils/mem_utils.py, total_consumed", since="0.27", asked=False)
    awq_kernel_chosen = flag("AWQ asks for the best kernel, not for Marlin",
        _QUANTIZATION + "awq_marlin.py, choose_mp_linear_kernel", since="0.22", asked=False)
    shared_keys_left = flag("Gemma 4's layers that read another's keys have a q_proj alone, and Gemma 3n "
        "has no buffer of embeddings", "model_executor/models/gemma4.py, gemma3n_mm.py", since="0.30",
        asked=False)
    rocm_padded_experts = flag("AMD's experts have 256 bytes after a row, and keep them",
        _EXPERTS + "unquantized_fused_moe_method.py, _maybe_pad_weight", since="0.25", asked=False)
    padded_plain_experts = flag(
        "FlashInfer's TRT-LLM kernels on 10.x keep unquantised experts at multiples of 128 a rank",
        _EXPERTS + "oracle/unquantized.py", since="0.24", asked=False)
    trtllm_ungrouped = flag("they route by sigmoid with a correction and without groups too",
        _EXPERTS + "experts/trtllm_bf16_moe.py, RoutingMethodType.MiniMax2", since="0.32", asked=False)
    no_activation_order = flag("GPTQ with desc_act and groups is refused",
        _QUANTIZATION + "utils/gptq_utils.py, normalize_and_validate_gptq_desc_act", since="0.30",
        asked=False)
    gated_nvfp4_width = steps("multiples of an NVFP4 expert's width with a gate, in those kernels",
        _QUANTIZATION + "utils/flashinfer_fp4_moe.py, min_alignment", 16, ("0.26", 64), asked=False)
    expert_kernels_installed = flag(
        "triton_kernels and FlashInfer are among its requirements, so the first kernel is certain",
        "requirements/cuda.txt", since="0.12", asked=False)

    # Memory: the profile run.
    wide_cublas_on_sm120 = flag("torch's cuBLAS workspace on 12.x is the large one", "torch 2.12",
        since="0.27", asked=False)
    sized_workspaces = flag(
        "FlashInfer's workspace is at least 16 bytes for each element of a batch's queries", _FLASHINFER,
        since="0.26", asked=False)
    context_capped = flag(
        "MLA's chunked prefill projects whole blocks up, and no longer a block of every request at least",
        _LATENT + ", determine_chunked_prefill_workspace_size", since="0.28", asked=False)
    sparse_reserves = flag("what sparse attention reserves was seen in a start", _BACKENDS + "mla/indexer.py",
        since="0.20", asked=False)
    short_gather = flag("above 256 Ki tokens 16 entries of gathered keys a token, not 40",
        _CONFIG + ", sparse_mla_prefill_workspace_factor", since="0.32", asked=False)
    v4_not_compiled = flag("DeepSeek-V4 is not compiled", "models/deepseek_v4/attention.py", since="0.23",
        asked=False)
    v4_indexed_last = flag("its indexer runs once the queries are projected",
        "models/deepseek_v4/attention.py, _sparse_indexer_and_attn", since="0.28", asked=False)
    v4_buffer_for_drafts = flag("it keeps the batch's streams for drafts alone, before always",
        "models/deepseek_v4/nvidia/model.py, _mtp_hidden_buffer", since="0.27", asked=False)
    v4_eight_heads = flag("its kernel of GPUs of 12.x takes eight heads too, before 16",
        "models/deepseek_v4/nvidia/flashinfer_sparse.py", since="0.27", asked=False)
    expert_chunk = steps("rows of experts' kernels at once; 0: all",
        _EXPERTS + "modular_kernel.py, VLLM_FUSED_MOE_CHUNK_SIZE", 32_768, ("0.12", 16_384), ("0.18", 0),
        asked=False)
    expert_chunk_reserved = flag("data and expert parallelism together reserve a whole chunk",
        _EXPERTS + "modular_kernel.py, _allocate_buffers", since="0.12", until="0.18", asked=False)
    naive_exchange = flag("the sum over data-parallel ranks is one more copy of all rows",
        "distributed/device_communicators/all2all.py", until="0.11", asked=False)
    trtllm_experts = flag("FlashInfer's TRT-LLM kernels are first on 10.x for quantised experts",
        _EXPERTS + "oracle/", since="0.15", asked=False)
    humming_experts = flag("Humming stands before Marlin on 9.0",
        _QUANTIZATION + "utils/humming/priority.py, prioritize_humming", since="0.32", asked=False)
    direct_marlin = steps("methods whose experts call Marlin by themselves",
        _QUANTIZATION + "awq_marlin.py, gptq_marlin.py", ("awq", "awq_marlin", "gptq", "gptq_marlin"),
        ("0.20", ("awq", "awq_marlin")), ("0.22", ()), asked=False)
    direct_marlin_integers = flag("so do integers of compressed-tensors",
        _QUANTIZATION + "compressed_tensors/compressed_tensors_moe/", until="0.23", asked=False)

    # Memory: the host.
    host_queues_read = flag("queues between processes and the offload region were read",
        "distributed/device_communicators/shm_broadcast.py, v1/kv_offload/cpu/", since="0.32", asked=False)
    # fmt: on


@lru_cache(maxsize=128)
def rules_of(version: str | Version) -> Rules:
    """The rules in force in a release."""
    return Rules.of(version)
