"""The options that vLLM alone has; read by the command line without loading the engine."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import ServerOptions, option, options_of
from kvplan.record import record

AUTO = "auto"
TRITON = ("auto", "triton")
"""--moe-backend whose kernel takes smaller blocks."""
MOE_BACKENDS = tuple(
    "auto triton batched_triton deep_gemm deep_gemm_mega_moe cutlass flashinfer_trtllm flashinfer_cutlass"
    " flashinfer_cutedsl flashinfer_moe_ep_cutedsl flashinfer_b12x b12x flashinfer_moe_ep_mega_deep_gemm"
    " marlin humming triton_unfused aiter aiter_mega_moe aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4"
    " flydsl hpc emulation rdna3".split()
)
"""vllm-project/vllm vllm/config/kernel.py, MoEBackend (0.33)."""
CUDAGRAPH_MODES = ("none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
"""vllm-project/vllm vllm/config/compilation.py, CUDAGraphMode (0.11 on)."""
PERFORMANCE_MODES = BALANCED, INTERACTIVITY, THROUGHPUT = ("balanced", "interactivity", "throughput")
"""vllm-project/vllm vllm/config/vllm.py, PerformanceMode (0.17 on)."""
EXPANDABLE = "expandable_segments:True"
"""PYTORCH_CUDA_ALLOC_CONF: torch's allocator maps pages, and rounds nothing up to segments."""
BLACKWELL = 10
"""The first compute capability of data-centre Blackwell, 10.x (is_device_capability_family(100))."""
FLASHINFER_SAMPLES = {"installed": None, "no_sampler": 0, "absent": 0}
"""VLLM_USE_FLASHINFER_SAMPLER: where FlashInfer is absent and nobody says so, releases from 0.26 on end at
their start (vllm/v1/sample/ops/topk_topp_sampler.py, flashinfer_sampler_supported)."""


@record()
class VllmOptions(ServerOptions):
    """The options that vLLM alone has."""

    prefill_context_parallel_size: int | None = option(
        "count",
        "Further GPUs over which prompts are divided; they hold the same cache (default: 1).",
        highest=65536,
        flags=("--pcp",),
    )
    kv_offloading_size: Fraction | None = option(
        "ratio", "GiB of host memory for blocks that leave the GPU, all ranks of an engine together."
    )
    enable_chunked_prefill: bool | None = option(
        "flag", "A step may take a part of a prompt (default: the engine's own; vLLM on, TensorRT-LLM off)."
    )
    disable_sliding_window: bool = option(
        "flag", "Windows are ignored: max_model_len is at most the window.", False
    )
    kv_offloading_backend: str | None = option(
        "word", "What moves them (default: native).", choices=("native", "lmcache")
    )
    kv_transfer_config: str | None = option(
        "map",
        "The KV connector that moves the cache between engines or off the GPU, as vLLM's JSON.",
        example='{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',
    )
    kv_events_config: str | None = option(
        "map",
        "Events of the cache, as vLLM's JSON: until 0.19 they turn the hybrid manager off.",
        example='{"enable_kv_cache_events": true}',
    )
    # The encoder beside a language model: vllm-project/vllm vllm/config/multimodal.py.
    limit_mm_per_prompt: str | None = option(
        "map",
        "Images, videos … of one prompt, or the size of those that the start is measured with.",
        example='{"image": 2, "video": 0}',
    )
    mm_processor_kwargs: str | None = option(
        "map",
        "What the model's processor is told, such as other limits of pixels.",
        example='{"max_pixels": 1003520}',
    )
    language_model_only: bool = option(
        "flag", "Text alone: the encoder is neither loaded nor measured.", False
    )
    skip_mm_profiling: bool = option("flag", "The start does not measure the encoder.", False)
    mm_encoder_tp_mode: str | None = option(
        "word",
        "The encoder's matrices divided over the GPUs, or whole on each and its items divided.",
        choices=("weights", "data"),
    )
    max_loras: int | None = option("count", "Adapters in one batch: slots on the GPU (default: 1).")
    lora_dtype: str | None = option(
        "word", "Dtype of the adapters (default: the model's).", choices=("auto", "float16", "bfloat16")
    )
    fully_sharded_loras: bool = option("flag", "Both matrices of an adapter divided among the GPUs.", False)
    max_cudagraph_capture_size: int | None = option(
        "count", "Tokens of the largest CUDA graph (default: up to 512)."
    )
    cudagraph_capture_sizes: tuple[int, ...] = option(
        "counts", "Tokens of each CUDA graph (default: 1, 2, 4, 8, 16 … up to the largest)."
    )
    cudagraph_mode: str | None = option(
        "word", "Which CUDA graphs are captured (default: full_and_piecewise).", choices=CUDAGRAPH_MODES
    )
    enable_sleep_mode: bool = option(
        "flag", "Weights and cache in a pool of their own, which /sleep gives back.", False
    )
    compile_cache: str = option(
        "word",
        "Whether the compiled code of an earlier start is at hand (default: the pool's interval has both).",
        "unknown",
        choices=("cold", "warm", "unknown"),
        served=False,
        planned=True,
    )
    flashinfer: str = option(
        "word",
        "Whether FlashInfer is there, as in every image and CUDA wheel, and samples (default: installed).",
        "installed",
        choices=("installed", "no_sampler", "absent"),
    )
    estimate_cudagraphs: bool = option(
        "flag", "CUDA graphs are estimated and taken off the share; off: they lie beside it.", True
    )
    pytorch_alloc_conf: str = option(
        "word",
        "What PYTORCH_CUDA_ALLOC_CONF says of segments (default: nothing).",
        "native",
        choices=("native", EXPANDABLE),
    )
    performance_mode: str = option(
        "word",
        "throughput: twice the default batch; interactivity: CUDA graphs of every size up to 32.",
        "balanced",
        choices=PERFORMANCE_MODES,
    )
    runner: str = option(
        "word",
        "Whether the model generates or pools: embeddings, classes (default: as its class and files say).",
        "auto",
        choices=("auto", "generate", "pooling"),
    )
    model_runner: str = option(
        "word",
        "The model runner, where VLLM_USE_V2_MODEL_RUNNER is set (default: the release's).",
        "auto",
        choices=("auto", "v1", "v2"),
    )
    moe_backend: str = option(
        "word", "The kernels of routed experts (default: the release's choice).", "auto", choices=MOE_BACKENDS
    )
    kv_cache_dtype_skip_layers: tuple[str, ...] = option(
        "words", "Layers kept in the model's dtype beside a smaller cache: numbers, or sliding_window."
    )
    mamba_cache_mode: str | None = option(
        "word",
        "States that prefix caching keeps: the last two blocks', or each block's (default: the release's).",
        choices=("none", "align", "all"),
    )
    enable_eplb: bool = option("flag", "Experts are moved between ranks by their load.", False)
    num_redundant_experts: int | None = option(
        "count", "Copies of experts beside the model's own (of --eplb-config; default: 0).", lowest=0
    )
    indexer_kv_dtype: str | None = option(
        "word",
        "What DeepSeek-V4's indexer keeps its keys in (default: fp8).",
        choices=("auto", "fp8", "mxfp4"),
    )


OPTIONS = options_of(VllmOptions)
