"""The keywords of `kvplan.size`, `kvplan.compare` and `kvplan.plan`, with their types and meanings.

Made by ``python -m scripts.make_api`` from the command line's table of options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypedDict

from kvplan.api.load import ModelLike
from kvplan.gpu import Gpu


class SizeOptions(TypedDict, total=False):
    """What `kvplan.size` takes beside the model and the engine. None is as if it were not given."""

    tokens: int | str | None
    """Tokens of one request; 32k is 32,768. Default: all the model takes."""
    answer_tokens: int | str | None
    """Of a request's tokens, those that are generated. Default: an eighth."""
    requests: int | None
    """How many requests run at once."""
    encoder_tokens: int | str | None
    """Positions that cross attention reads."""
    images: int | str | None
    """Images in one request, counted by the model's own processor."""
    image_size: str | None
    """Size of the images, or of the video's frames, such as 1280x720."""
    video_frames: int | str | None
    """Frames of one video in the request, as they are sampled."""
    audio_seconds: float | str | None
    """Audio in the request."""
    min_pixels: int | str | None
    """Least pixels of an image, where the server's processor differs."""
    max_pixels: int | str | None
    """Most pixels of an image, where the server's processor differs."""
    kv_retention: str | None
    """Tokens of a request that stay: first and newest ones, sinks:4,window:4096 (default: all)."""
    enable_lora: bool | None
    """Room for LoRA adapters beside the weights."""
    max_lora_rank: int | str | None
    """Largest rank of an adapter (vLLM's default: 16)."""
    lora_target_modules: str | Sequence[str] | None
    """Modules that may have adapters, such as qkv_proj,o_proj (vLLM: all by default)."""
    any_length: bool | None
    """With max_model_len: one longer than the config's is let through."""
    config_length: int | str | None
    """max_position_embeddings, where an override of the config says another."""
    prefill_context_parallel_size: int | str | None
    """Further GPUs over which prompts are divided; they hold the same cache (default: 1)."""
    kv_offloading_size: Fraction | float | str | None
    """GiB of host memory for blocks that leave the GPU, all ranks of an engine together."""
    limit_mm_per_prompt: str | Mapping[str, Any] | None
    """Images, videos … of one prompt, or the size of those that the start is measured with."""
    mm_processor_kwargs: str | Mapping[str, Any] | None
    """What the model's processor is told, such as other limits of pixels."""
    language_model_only: bool | None
    """Text alone: the encoder is neither loaded nor measured."""
    skip_mm_profiling: bool | None
    """The start does not measure the encoder."""
    mm_encoder_tp_mode: str | None
    """The encoder's matrices divided over the GPUs, or whole on each and its items divided. One of
    weights, data."""
    max_loras: int | str | None
    """Adapters in one batch: slots on the GPU (default: 1)."""
    lora_dtype: str | None
    """Dtype of the adapters (default: the model's). One of auto, float16, bfloat16."""
    fully_sharded_loras: bool | None
    """Both matrices of an adapter divided among the GPUs."""
    max_cudagraph_capture_size: int | str | None
    """Tokens of the largest CUDA graph (default: up to 512)."""
    cudagraph_capture_sizes: str | Sequence[int] | None
    """Tokens of each CUDA graph (default: 1, 2, 4, 8, 16 … up to the largest)."""
    cudagraph_mode: str | None
    """Which CUDA graphs are captured (default: full_and_piecewise). One of none, piecewise, full,
    full_decode_only, full_and_piecewise."""
    enable_sleep_mode: bool | None
    """Weights and cache in a pool of their own, which /sleep gives back."""
    compile_cache: str | None
    """Whether the compiled code of an earlier start is at hand (default: the pool's interval has both).
    One of cold, warm, unknown."""
    flashinfer: str | None
    """Whether FlashInfer is there, as in every image and CUDA wheel, and samples (default: installed). One
    of installed, no_sampler, absent."""
    estimate_cudagraphs: bool | None
    """CUDA graphs are estimated and taken off the share; off: they lie beside it."""
    pytorch_alloc_conf: str | None
    """What PYTORCH_CUDA_ALLOC_CONF says of segments (default: nothing). One of native,
    expandable_segments:True."""
    performance_mode: str | None
    """throughput: twice the default batch; interactivity: CUDA graphs of every size up to 32. One of
    balanced, interactivity, throughput."""
    runner: str | None
    """Whether the model generates or pools: embeddings, classes (default: as its class and files say). One
    of auto, generate, pooling."""
    model_runner: str | None
    """The model runner, where VLLM_USE_V2_MODEL_RUNNER is set (default: the release's). One of auto, v1,
    v2."""
    moe_backend: str | None
    """The kernels of routed experts (default: the release's choice). One of auto, triton, batched_triton,
    deep_gemm, deep_gemm_mega_moe, cutlass, flashinfer_trtllm, flashinfer_cutlass,
    flashinfer_cutedsl, flashinfer_moe_ep_cutedsl, flashinfer_b12x, b12x,
    flashinfer_moe_ep_mega_deep_gemm, marlin, humming, triton_unfused, aiter, aiter_mega_moe,
    aiter_triton_mxfp4_bf16, aiter_triton_mxfp4_mxfp4, flydsl, hpc, emulation, rdna3."""
    indexer_kv_dtype: str | None
    """What DeepSeek-V4's indexer keeps its keys in (default: fp8). One of auto, fp8, mxfp4."""
    mem_fraction_static: Fraction | float | str | None
    """Part of the memory for weights and cache (default: by the GPU's memory)."""
    swa_full_tokens_ratio: Fraction | float | str | None
    """Tokens of the window pool per token of the full one (default: 0.8; DeepSeek-V4 and Inkling 0.1)."""
    disable_hybrid_swa_memory: bool | None
    """Window layers keep every token."""
    disable_radix_cache: bool | None
    """No reuse of prompts: a state-space request takes one slot."""
    disable_overlap_schedule: bool | None
    """No overlap of scheduling and forward."""
    mamba_full_memory_ratio: Fraction | float | str | None
    """Memory of states per memory of KV (default: 0.9; Inkling 0.1)."""
    mamba_radix_cache_strategy: str | None
    """How states are kept for reuse. One of auto, no_buffer, extra_buffer, extra_buffer_lazy."""
    mamba_padding_slot: bool | None
    """The slot for padding comes out of the budget; off: before July 2026 (sglang#32184)."""
    max_mamba_cache_size: int | str | None
    """Slots of states, whatever the memory."""
    max_total_tokens: int | str | None
    """Upper bound of the pool's tokens."""
    chunked_prefill_size: int | str | None
    """Tokens of a prefill chunk (default: by the GPU's memory; -1: prompts are not divided)."""
    cuda_graph_max_bs: int | str | None
    """Requests of the largest decode graph (default: by the GPU's memory)."""
    disaggregation_mode: str | None
    """What the server does where prompts and answers have servers of their own. One of null, prefill,
    decode."""
    max_prefill_tokens: int | str | None
    """Tokens of all prompts of a prefill (default: 16,384)."""
    enable_mixed_chunk: bool | None
    """Answers beside the prompts of a prefill."""
    schedule_policy: str | None
    """Order of waiting requests. One of fcfs, lpm, lof, dfs-weight, random, routing-key, hrrn, shortest-
    prefill-first, priority."""
    schedule_conservativeness: Fraction | float | str | None
    """How much of its answer a running request is expected to make."""
    radix_eviction_policy: str | None
    """What the radix cache forgets first. One of lru, lfu, fifo, mru, filo, priority, slru."""
    draft_layers: int | str | None
    """Layers of the draft model (default: the model's own prediction layers)."""
    dsa_prefill_backend: str | None
    """Prefill backend of sparse attention. One of flashmla_sparse, flashmla_kv, fa3, tilelang, trtllm,
    flashinfer_sparse_mla."""
    dsa_decode_backend: str | None
    """Decode backend of sparse attention. One of flashmla_sparse, flashmla_kv, fa3, tilelang, trtllm,
    flashinfer_sparse_mla."""
    enable_dp_attention: bool | None
    """Attention data-parallel over --dp inside --tp."""
    attn_dp_size: int | str | None
    """The same in one option: attention groups inside --tp."""
    enable_dp_lm_head: bool | None
    """Head divided inside an attention group."""
    ep_size: int | str | None
    """Ranks among which whole experts are divided (default: 1)."""
    moe_a2a_backend: str | None
    """All-to-all of experts: sets ep_size. One of none, deepep, mooncake, nixl, mori, flashinfer."""
    moe_dense_tp_size: int | str | None
    """1: perceptrons without experts whole on each rank."""
    ep_num_redundant_experts: int | str | None
    """Copies of experts beside the model's own."""
    max_loras_per_batch: int | str | None
    """Adapters in one batch: slots on the GPU (default: 8)."""
    free_gpu_memory_fraction: Fraction | float | str | None
    """Part of the memory that the start-up run leaves, for the cache."""
    max_attention_window: str | Sequence[int] | None
    """Window of each layer, repeated over the layers (default: none)."""
    window_size_shares: str | Sequence[float] | None
    """Part of the memory of each window size, smallest first (default: equal)."""
    max_tokens: int | str | None
    """Upper bound of the pool's tokens; not for several windows."""
    use_kv_cache_manager_v2: bool | None
    """The prototype that shares pools between windows whose blocks are alike."""
    max_util_for_resume: Fraction | float | str | None
    """Part of the pool up to which requests resume, for the prototype."""
    mamba_state_cache_interval: int | str | None
    """Tokens between snapshots of a state (default: no reuse of states)."""
    capacity_scheduler_policy: str | None
    """Who is let in: with room for the whole answer, for the next step, or batch by batch. One of
    GUARANTEED_NO_EVICT, MAX_UTILIZATION, STATIC_BATCH."""
    enable_chunked_prefill: bool | None
    """Prompts are cut into chunks."""
    context_chunking_policy: str | None
    """How a step's tokens are dealt to prompts that are cut. One of FIRST_COME_FIRST_SERVED,
    EQUAL_PROGRESS."""
    enable_partial_reuse: bool | None
    """Blocks that are alike in part are reused."""
    disable_overlap_scheduler: bool | None
    """No overlap of scheduling and forward."""
    enable_attention_dp: bool | None
    """Attention data-parallel: every rank keeps all heads."""
    moe_expert_parallel_size: int | str | None
    """Ranks among which whole experts are divided (default: 1)."""
    cache_type_k: str | None
    """Cache type of K. One of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1."""
    cache_type_v: str | None
    """Cache type of V. One of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1."""
    ctx_size: int | str | None
    """n_ctx, over all slots; 0: the model's own (default: what the requests need)."""
    parallel: int | str | None
    """Slots (default: one a request)."""
    kv_unified: bool | None
    """One buffer for all slots; without --parallel at least 4, as llama-server."""
    ubatch_size: int | str | None
    """Physical batch: a window layer has so many cells more."""
    swa_full: bool | None
    """Window layers at full length."""
    flash_attn: bool | None
    """Flash attention; a quantised V needs it."""
    n_gpu_layers: int | str | None
    """Layers on the GPUs, the last ones (default: all)."""
    tensor_split: str | Sequence[float] | None
    """Layers of each GPU in proportion, such as 2,1 (default: by their memory)."""
    n_cpu_moe: int | str | None
    """Layers, the first ones, whose experts stay in host memory."""
    cpu_moe: bool | None
    """All experts stay in host memory."""
    fit: bool | None
    """Cut the context and leave layers in host memory (default: where either is not given)."""
    fit_target: int | str | None
    """Bytes of each GPU that --fit keeps free."""
    fit_ctx: int | str | None
    """The context is the server's affair: its own length, cut to no less than this."""
    kv_offload: bool | None
    """Keep the cache on the GPUs; off: in host memory."""
    mmproj: bool | None
    """The encoder of images, in f16, on the first GPU."""
    host_memory: int | str | None
    """Host memory that weights and cache may take, where they lie there: 64GiB."""
    continuous_batching: bool | None
    """Requests share a paged pool, as `transformers serve` with it."""
    attn_implementation: str | None
    """The class's attention: flash_attention_2 needs no masks. One of sdpa, eager, flash_attention_2,
    flash_attention_3."""
    max_memory_percent: Fraction | float | str | None
    """Part of the memory free beside the model for continuous batching (default: 0.8 to 0.9)."""
    max_blocks_per_request: int | str | None
    """Width of the block tables of flash attention's decoding (default: 32)."""
    use_async_batching: bool | None
    """Two sets of batch tensors (default: with CUDA graphs)."""
    use_cuda_graph: bool | None
    """CUDA graphs (default: with flash attention)."""
    return_logprobs: bool | None
    """Log probabilities beside the tokens."""
    cuda_memory_fraction: Fraction | float | str | None
    """Part of the GPU's memory that TGI may take."""
    max_concurrent_requests: int | str | None
    """Requests that TGI takes at once (default: 128)."""
    speculate: int | str | None
    """Tokens that TGI proposes a step, from what was seen before (default: none)."""
    tgi_attention: str | None
    """TGI's variable ATTENTION (default: by the width of a head). One of flashinfer, flashdecoding, paged."""
    kv_cache_memory: int | str | None
    """Memory for the cache on each GPU, such as 16GiB: how many requests fit?"""
    gpu: Gpu | str | None
    """GPU (kvplan list gpus), how many, a size such as 80GiB, or auto: its memory budget and pool."""
    tensor_parallel_size: int | None
    """Tensor parallel size."""
    pipeline_parallel_size: int | None
    """Pipeline parallel size."""
    data_parallel_size: int | None
    """Data parallel size (replicas)."""
    decode_context_parallel_size: int | None
    """Decode context parallel size."""
    gpu_memory_utilization: Fraction | float | str | None
    """Share of the GPU's memory that vLLM may take. Default: the version's."""
    enable_expert_parallel: bool | None
    """Whole experts on each GPU."""
    cpu_offload_gb: Fraction | float | str | None
    """GiB of weights kept in the CPU's memory, for each GPU."""
    dtype: str | None
    """The model's dtype: auto, bfloat16, float16, float32."""
    kv_cache_dtype: str | None
    """The cache's dtype: auto, bfloat16, fp8, fp8_e5m2, nvfp4, fp8_ds_mla, q8_0 and more."""
    mamba_cache_dtype: str | None
    """Dtype of convolution states."""
    mamba_ssm_cache_dtype: str | None
    """Dtype of recurrent states."""
    weights: int | str | None
    """Weights on each GPU, such as 15GiB: what its log says that loading took."""
    weights_from: str | None
    """transformers: count the weights by building the model's class, for models without tensor rules."""
    quantization: str | None
    """Quantise the weights while loading: fp8, bitsandbytes."""
    max_model_len: int | str | None
    """Longest request that the engine is started for; auto: the longest that fits."""
    enforce_eager: bool | None
    """No CUDA graphs."""
    max_num_seqs: int | None
    """Most requests in one step."""
    max_num_batched_tokens: int | str | None
    """Most tokens in one step; a window layer keeps this many more."""
    block_size: int | None
    """Tokens in a block."""
    num_gpu_blocks_override: int | None
    """Blocks of the pool, whatever the memory."""
    enable_prefix_caching: bool | None
    """Keep finished prompts for reuse."""
    disable_hybrid_kv_cache_manager: bool | None
    """Every layer keeps all tokens, as vLLM does with this flag."""
    attention_backend: str | None
    """Attention backend, where it decides the block size."""
    async_scheduling: bool | None
    """Schedule a step while another runs: window layers keep the tokens of both."""
    usage: str | None
    """Defaults of `vllm serve` or of the LLM class."""
    cache_implementation: str | None
    """transformers: the cache that grows, or the one allocated at full length."""
    speculative_model: ModelLike | None
    """The draft model, beside --speculative draft_model:5: its weights and its cache count."""
    speculative_config: str | Mapping[str, Any] | None
    """Speculative decoding: vLLM's dict, its JSON, mtp:1."""
    speculative_method: str | None
    """The method alone: mtp, eagle3, ngram, draft_model …"""
    num_speculative_tokens: int | None
    """Tokens that it proposes."""
    tp: int | None
    """Short for tensor_parallel_size."""
    pp: int | None
    """Short for pipeline_parallel_size."""
    dp: int | None
    """Short for data_parallel_size."""
    dcp: int | None
    """Short for decode_context_parallel_size."""
    batch_size: int | None
    """Short for requests."""
    context: int | str | None
    """Short for tokens."""
    kv_dtype: str | None
    """Short for kv_cache_dtype."""


class PlanOptions(TypedDict, total=False):
    """What `kvplan.plan` hands to all candidates. None is as if it were not given."""

    answer_tokens: int | str | None
    """Of a request's tokens, those that are generated. Default: an eighth."""
    encoder_tokens: int | str | None
    """Positions that cross attention reads."""
    images: int | str | None
    """Images in one request, counted by the model's own processor."""
    image_size: str | None
    """Size of the images, or of the video's frames, such as 1280x720."""
    video_frames: int | str | None
    """Frames of one video in the request, as they are sampled."""
    audio_seconds: float | str | None
    """Audio in the request."""
    min_pixels: int | str | None
    """Least pixels of an image, where the server's processor differs."""
    max_pixels: int | str | None
    """Most pixels of an image, where the server's processor differs."""
    kv_retention: str | None
    """Tokens of a request that stay: first and newest ones, sinks:4,window:4096 (default: all)."""
    enable_lora: bool | None
    """Room for LoRA adapters beside the weights."""
    max_lora_rank: int | str | None
    """Largest rank of an adapter (vLLM's default: 16)."""
    lora_target_modules: str | Sequence[str] | None
    """Modules that may have adapters, such as qkv_proj,o_proj (vLLM: all by default)."""
    any_length: bool | None
    """With max_model_len: one longer than the config's is let through."""
    config_length: int | str | None
    """max_position_embeddings, where an override of the config says another."""
    prefill_context_parallel_size: int | str | None
    """Further GPUs over which prompts are divided; they hold the same cache (default: 1)."""
    kv_offloading_size: Fraction | float | str | None
    """GiB of host memory for blocks that leave the GPU, all ranks of an engine together."""
    limit_mm_per_prompt: str | Mapping[str, Any] | None
    """Images, videos … of one prompt, or the size of those that the start is measured with."""
    mm_processor_kwargs: str | Mapping[str, Any] | None
    """What the model's processor is told, such as other limits of pixels."""
    language_model_only: bool | None
    """Text alone: the encoder is neither loaded nor measured."""
    skip_mm_profiling: bool | None
    """The start does not measure the encoder."""
    mm_encoder_tp_mode: str | None
    """The encoder's matrices divided over the GPUs, or whole on each and its items divided. One of
    weights, data."""
    max_loras: int | str | None
    """Adapters in one batch: slots on the GPU (default: 1)."""
    lora_dtype: str | None
    """Dtype of the adapters (default: the model's). One of auto, float16, bfloat16."""
    fully_sharded_loras: bool | None
    """Both matrices of an adapter divided among the GPUs."""
    max_cudagraph_capture_size: int | str | None
    """Tokens of the largest CUDA graph (default: up to 512)."""
    cudagraph_capture_sizes: str | Sequence[int] | None
    """Tokens of each CUDA graph (default: 1, 2, 4, 8, 16 … up to the largest)."""
    cudagraph_mode: str | None
    """Which CUDA graphs are captured (default: full_and_piecewise). One of none, piecewise, full,
    full_decode_only, full_and_piecewise."""
    enable_sleep_mode: bool | None
    """Weights and cache in a pool of their own, which /sleep gives back."""
    compile_cache: str | None
    """Whether the compiled code of an earlier start is at hand (default: the pool's interval has both).
    One of cold, warm, unknown."""
    flashinfer: str | None
    """Whether FlashInfer is there, as in every image and CUDA wheel, and samples (default: installed). One
    of installed, no_sampler, absent."""
    estimate_cudagraphs: bool | None
    """CUDA graphs are estimated and taken off the share; off: they lie beside it."""
    pytorch_alloc_conf: str | None
    """What PYTORCH_CUDA_ALLOC_CONF says of segments (default: nothing). One of native,
    expandable_segments:True."""
    performance_mode: str | None
    """throughput: twice the default batch; interactivity: CUDA graphs of every size up to 32. One of
    balanced, interactivity, throughput."""
    runner: str | None
    """Whether the model generates or pools: embeddings, classes (default: as its class and files say). One
    of auto, generate, pooling."""
    model_runner: str | None
    """The model runner, where VLLM_USE_V2_MODEL_RUNNER is set (default: the release's). One of auto, v1,
    v2."""
    moe_backend: str | None
    """The kernels of routed experts (default: the release's choice). One of auto, triton, batched_triton,
    deep_gemm, deep_gemm_mega_moe, cutlass, flashinfer_trtllm, flashinfer_cutlass,
    flashinfer_cutedsl, flashinfer_moe_ep_cutedsl, flashinfer_b12x, b12x,
    flashinfer_moe_ep_mega_deep_gemm, marlin, humming, triton_unfused, aiter, aiter_mega_moe,
    aiter_triton_mxfp4_bf16, aiter_triton_mxfp4_mxfp4, flydsl, hpc, emulation, rdna3."""
    indexer_kv_dtype: str | None
    """What DeepSeek-V4's indexer keeps its keys in (default: fp8). One of auto, fp8, mxfp4."""
    mem_fraction_static: Fraction | float | str | None
    """Part of the memory for weights and cache (default: by the GPU's memory)."""
    swa_full_tokens_ratio: Fraction | float | str | None
    """Tokens of the window pool per token of the full one (default: 0.8; DeepSeek-V4 and Inkling 0.1)."""
    disable_hybrid_swa_memory: bool | None
    """Window layers keep every token."""
    disable_radix_cache: bool | None
    """No reuse of prompts: a state-space request takes one slot."""
    disable_overlap_schedule: bool | None
    """No overlap of scheduling and forward."""
    mamba_full_memory_ratio: Fraction | float | str | None
    """Memory of states per memory of KV (default: 0.9; Inkling 0.1)."""
    mamba_radix_cache_strategy: str | None
    """How states are kept for reuse. One of auto, no_buffer, extra_buffer, extra_buffer_lazy."""
    mamba_padding_slot: bool | None
    """The slot for padding comes out of the budget; off: before July 2026 (sglang#32184)."""
    max_mamba_cache_size: int | str | None
    """Slots of states, whatever the memory."""
    max_total_tokens: int | str | None
    """Upper bound of the pool's tokens."""
    chunked_prefill_size: int | str | None
    """Tokens of a prefill chunk (default: by the GPU's memory; -1: prompts are not divided)."""
    cuda_graph_max_bs: int | str | None
    """Requests of the largest decode graph (default: by the GPU's memory)."""
    disaggregation_mode: str | None
    """What the server does where prompts and answers have servers of their own. One of null, prefill,
    decode."""
    max_prefill_tokens: int | str | None
    """Tokens of all prompts of a prefill (default: 16,384)."""
    enable_mixed_chunk: bool | None
    """Answers beside the prompts of a prefill."""
    schedule_policy: str | None
    """Order of waiting requests. One of fcfs, lpm, lof, dfs-weight, random, routing-key, hrrn, shortest-
    prefill-first, priority."""
    schedule_conservativeness: Fraction | float | str | None
    """How much of its answer a running request is expected to make."""
    radix_eviction_policy: str | None
    """What the radix cache forgets first. One of lru, lfu, fifo, mru, filo, priority, slru."""
    draft_layers: int | str | None
    """Layers of the draft model (default: the model's own prediction layers)."""
    dsa_prefill_backend: str | None
    """Prefill backend of sparse attention. One of flashmla_sparse, flashmla_kv, fa3, tilelang, trtllm,
    flashinfer_sparse_mla."""
    dsa_decode_backend: str | None
    """Decode backend of sparse attention. One of flashmla_sparse, flashmla_kv, fa3, tilelang, trtllm,
    flashinfer_sparse_mla."""
    enable_dp_attention: bool | None
    """Attention data-parallel over --dp inside --tp."""
    attn_dp_size: int | str | None
    """The same in one option: attention groups inside --tp."""
    enable_dp_lm_head: bool | None
    """Head divided inside an attention group."""
    ep_size: int | str | None
    """Ranks among which whole experts are divided (default: 1)."""
    moe_a2a_backend: str | None
    """All-to-all of experts: sets ep_size. One of none, deepep, mooncake, nixl, mori, flashinfer."""
    moe_dense_tp_size: int | str | None
    """1: perceptrons without experts whole on each rank."""
    ep_num_redundant_experts: int | str | None
    """Copies of experts beside the model's own."""
    max_loras_per_batch: int | str | None
    """Adapters in one batch: slots on the GPU (default: 8)."""
    free_gpu_memory_fraction: Fraction | float | str | None
    """Part of the memory that the start-up run leaves, for the cache."""
    max_attention_window: str | Sequence[int] | None
    """Window of each layer, repeated over the layers (default: none)."""
    window_size_shares: str | Sequence[float] | None
    """Part of the memory of each window size, smallest first (default: equal)."""
    max_tokens: int | str | None
    """Upper bound of the pool's tokens; not for several windows."""
    use_kv_cache_manager_v2: bool | None
    """The prototype that shares pools between windows whose blocks are alike."""
    max_util_for_resume: Fraction | float | str | None
    """Part of the pool up to which requests resume, for the prototype."""
    mamba_state_cache_interval: int | str | None
    """Tokens between snapshots of a state (default: no reuse of states)."""
    capacity_scheduler_policy: str | None
    """Who is let in: with room for the whole answer, for the next step, or batch by batch. One of
    GUARANTEED_NO_EVICT, MAX_UTILIZATION, STATIC_BATCH."""
    enable_chunked_prefill: bool | None
    """Prompts are cut into chunks."""
    context_chunking_policy: str | None
    """How a step's tokens are dealt to prompts that are cut. One of FIRST_COME_FIRST_SERVED,
    EQUAL_PROGRESS."""
    enable_partial_reuse: bool | None
    """Blocks that are alike in part are reused."""
    disable_overlap_scheduler: bool | None
    """No overlap of scheduling and forward."""
    enable_attention_dp: bool | None
    """Attention data-parallel: every rank keeps all heads."""
    moe_expert_parallel_size: int | str | None
    """Ranks among which whole experts are divided (default: 1)."""
    cache_type_k: str | None
    """Cache type of K. One of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1."""
    cache_type_v: str | None
    """Cache type of V. One of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1."""
    ctx_size: int | str | None
    """n_ctx, over all slots; 0: the model's own (default: what the requests need)."""
    parallel: int | str | None
    """Slots (default: one a request)."""
    kv_unified: bool | None
    """One buffer for all slots; without --parallel at least 4, as llama-server."""
    ubatch_size: int | str | None
    """Physical batch: a window layer has so many cells more."""
    swa_full: bool | None
    """Window layers at full length."""
    flash_attn: bool | None
    """Flash attention; a quantised V needs it."""
    n_gpu_layers: int | str | None
    """Layers on the GPUs, the last ones (default: all)."""
    tensor_split: str | Sequence[float] | None
    """Layers of each GPU in proportion, such as 2,1 (default: by their memory)."""
    n_cpu_moe: int | str | None
    """Layers, the first ones, whose experts stay in host memory."""
    cpu_moe: bool | None
    """All experts stay in host memory."""
    fit: bool | None
    """Cut the context and leave layers in host memory (default: where either is not given)."""
    fit_target: int | str | None
    """Bytes of each GPU that --fit keeps free."""
    fit_ctx: int | str | None
    """The context is the server's affair: its own length, cut to no less than this."""
    kv_offload: bool | None
    """Keep the cache on the GPUs; off: in host memory."""
    mmproj: bool | None
    """The encoder of images, in f16, on the first GPU."""
    continuous_batching: bool | None
    """Requests share a paged pool, as `transformers serve` with it."""
    attn_implementation: str | None
    """The class's attention: flash_attention_2 needs no masks. One of sdpa, eager, flash_attention_2,
    flash_attention_3."""
    max_memory_percent: Fraction | float | str | None
    """Part of the memory free beside the model for continuous batching (default: 0.8 to 0.9)."""
    max_blocks_per_request: int | str | None
    """Width of the block tables of flash attention's decoding (default: 32)."""
    use_async_batching: bool | None
    """Two sets of batch tensors (default: with CUDA graphs)."""
    use_cuda_graph: bool | None
    """CUDA graphs (default: with flash attention)."""
    return_logprobs: bool | None
    """Log probabilities beside the tokens."""
    cuda_memory_fraction: Fraction | float | str | None
    """Part of the GPU's memory that TGI may take."""
    max_concurrent_requests: int | str | None
    """Requests that TGI takes at once (default: 128)."""
    speculate: int | str | None
    """Tokens that TGI proposes a step, from what was seen before (default: none)."""
    tgi_attention: str | None
    """TGI's variable ATTENTION (default: by the width of a head). One of flashinfer, flashdecoding, paged."""
    kv_cache_memory: int | str | None
    """Memory for the cache on each GPU, such as 16GiB: how many requests fit?"""
    gpu_memory_utilization: Fraction | float | str | None
    """Share of the GPU's memory that vLLM may take. Default: the version's."""
    cpu_offload_gb: Fraction | float | str | None
    """GiB of weights kept in the CPU's memory, for each GPU."""
    dtype: str | None
    """The model's dtype: auto, bfloat16, float16, float32."""
    mamba_cache_dtype: str | None
    """Dtype of convolution states."""
    mamba_ssm_cache_dtype: str | None
    """Dtype of recurrent states."""
    weights: int | str | None
    """Weights on each GPU, such as 15GiB: what its log says that loading took."""
    quantization: str | None
    """Quantise the weights while loading: fp8, bitsandbytes."""
    enforce_eager: bool | None
    """No CUDA graphs."""
    max_num_batched_tokens: int | str | None
    """Most tokens in one step; a window layer keeps this many more."""
    block_size: int | None
    """Tokens in a block."""
    num_gpu_blocks_override: int | None
    """Blocks of the pool, whatever the memory."""
    enable_prefix_caching: bool | None
    """Keep finished prompts for reuse."""
    disable_hybrid_kv_cache_manager: bool | None
    """Every layer keeps all tokens, as vLLM does with this flag."""
    attention_backend: str | None
    """Attention backend, where it decides the block size."""
    async_scheduling: bool | None
    """Schedule a step while another runs: window layers keep the tokens of both."""
    usage: str | None
    """Defaults of `vllm serve` or of the LLM class."""
    cache_implementation: str | None
    """transformers: the cache that grows, or the one allocated at full length."""
    speculative_model: ModelLike | None
    """The draft model, beside --speculative draft_model:5: its weights and its cache count."""
    speculative_config: str | Mapping[str, Any] | None
    """Speculative decoding: vLLM's dict, its JSON, mtp:1."""
    speculative_method: str | None
    """The method alone: mtp, eagle3, ngram, draft_model …"""
    num_speculative_tokens: int | None
    """Tokens that it proposes."""
