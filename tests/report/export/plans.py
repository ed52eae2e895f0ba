"""Plans for the tests of what kvplan writes for engines."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.api import load_gpu
from kvplan.own_options import OwnOptions
from kvplan.plans.plan import Plan
from kvplan.settings import Settings


def plan(
    engine: str = "vllm@0.32",
    gpu: str = "h100",
    gpus: int = 1,
    *,
    model: str = "hf:Qwen/Qwen3-32B",
    name: str = "chat",
    serve: tuple[tuple[str, object], ...] = (),
    **settings: Any,
) -> Plan:
    """A plan of the given settings; own options of the engine go in as ``options={…}``."""
    own = OwnOptions.of(settings.pop("options", {}))
    made = Settings(gpu=load_gpu(gpu), own=own, **settings)
    return Plan(name, model, engine, gpus, made, serve=serve)


def full(engine: str) -> Plan:
    """A plan in which every setting that the engine has an argument for is set."""
    made = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm, "llamacpp": _llamacpp}
    return {**made, "transformers": _transformers, "tgi": _tgi, "mlx": _mlx}[engine]()


def _vllm() -> Plan:
    return plan(
        gpus=8,
        serve=(
            ("host", "127.0.0.1"), ("port", 9000), ("served_model_name", ("chat", "qwen")),
            ("trust_remote_code", True), ("revision", "main"), ("chat_template", "a b.jinja"),
            ("tool_call_parser", "hermes"),
            ("max_num_seqs", 256),
        ),
        tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=2,
        decode_context_parallel_size=2, enable_expert_parallel=True, dtype="bfloat16", quantization="fp8",
        kv_cache_dtype="fp8",
        mamba_cache_dtype="float32", mamba_ssm_cache_dtype="float32", max_model_len=-1, max_num_seqs=256,
        max_num_batched_tokens=8192, block_size=32, gpu_memory_utilization=Fraction(93, 100),
        kv_cache_memory=2**34, num_gpu_blocks_override=1000, enable_prefix_caching=False,
        disable_hybrid_kv_cache_manager=True, attention_backend="FLASH_ATTN", async_scheduling=False,
        enforce_eager=True, cpu_offload_gb=Fraction(3, 2), speculative_method="mtp", num_speculative_tokens=2,
        options={
            "enable_lora": True, "max_loras": 4, "max_lora_rank": 32, "lora_dtype": "bfloat16",
            "lora_target_modules": ("qkv_proj", "o_proj"), "fully_sharded_loras": True,
            "cudagraph_mode": "piecewise", "enable_sleep_mode": True,
            "max_cudagraph_capture_size": 256, "model_runner": "v2", "moe_backend": "triton",
            "pytorch_alloc_conf": "expandable_segments:True", "any_length": True, "config_length": 65536,
            "runner": "generate", "flashinfer": "no_sampler", "performance_mode": "throughput",
            "estimate_cudagraphs": False,
            "cudagraph_capture_sizes": (1, 2, 4, 256),
            "limit_mm_per_prompt": '{"image": 2}',
            "mm_processor_kwargs": '{"max_pixels": 1003520}', "language_model_only": True,
            "skip_mm_profiling": True, "indexer_kv_dtype": "fp8", "mm_encoder_tp_mode": "data",
            "kv_offloading_size": Fraction(64), "prefill_context_parallel_size": 1,
            "kv_offloading_backend": "native", "disable_sliding_window": True,
            "enable_chunked_prefill": False, "kv_cache_dtype_skip_layers": ("0", "sliding_window"),
            "mamba_cache_mode": "align", "enable_eplb": True, "num_redundant_experts": 16,
            "kv_transfer_config": '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}',
            "kv_events_config": '{"enable_kv_cache_events": true}',
        },
    )  # fmt: skip


def _sglang() -> Plan:
    return plan(
        "sglang@0.5.23",
        gpus=8,
        serve=(
            ("host", "127.0.0.1"), ("port", 9000), ("served_model_name", "chat"), ("trust_remote_code", True),
            ("revision", "main"), ("chat_template", "chatml"), ("tool_call_parser", "qwen"),
            ("enable_hierarchical_cache", True), ("hicache_size", 64), ("hicache_write_policy", "write_back"),
            ("disable_cuda_graph", True),
        ),
        tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=2,
        decode_context_parallel_size=2, enable_expert_parallel=True, dtype="bfloat16", quantization="fp8",
        kv_cache_dtype="fp8",
        mamba_ssm_cache_dtype="bfloat16", max_model_len=32768, max_num_seqs=128, block_size=64,
        attention_backend="fa3", enforce_eager=True, cpu_offload_gb=Fraction(2), enable_prefix_caching=False,
        speculative_method="mtp", num_speculative_tokens=3,
        options={
            "mem_fraction_static": Fraction(85, 100), "max_total_tokens": 10**6, "chunked_prefill_size": 8192,
            "swa_full_tokens_ratio": Fraction(1, 2), "disable_hybrid_swa_memory": True,
            "disable_radix_cache": False, "disable_overlap_schedule": True, "enable_dp_attention": True,
            "mamba_full_memory_ratio": Fraction(9, 10), "mamba_radix_cache_strategy": "extra_buffer",
            "cuda_graph_max_bs": 128, "disaggregation_mode": "prefill",
            "max_mamba_cache_size": 100, "dsa_prefill_backend": "fa3", "dsa_decode_backend": "fa3",
            "enable_lora": True, "max_loras_per_batch": 4, "max_lora_rank": 32,
            "lora_target_modules": ("qkv_proj", "o_proj"), "attn_dp_size": 2, "enable_dp_lm_head": True,
            "ep_size": 4, "moe_a2a_backend": "deepep", "moe_dense_tp_size": 1, "ep_num_redundant_experts": 16,
            "max_prefill_tokens": 4096, "enable_mixed_chunk": True, "schedule_policy": "lpm",
            "schedule_conservativeness": Fraction(3, 2), "radix_eviction_policy": "lfu",
            "any_length": True, "config_length": 65536, "enable_two_batch_overlap": True,
        },
    )  # fmt: skip


def _trtllm() -> Plan:
    return plan(
        "trtllm@1.2",
        gpus=4,
        serve=(
            ("host", "127.0.0.1"), ("port", 9000), ("trust_remote_code", True), ("revision", "main"),
            ("chat_template", "a.jinja"), ("tool_call_parser", "qwen3"), ("tokens_per_block", 64),
        ),
        tensor_parallel_size=2, pipeline_parallel_size=2, enable_expert_parallel=True, dtype="bfloat16",
        kv_cache_dtype="fp8_e4m3", mamba_ssm_cache_dtype="float32", max_model_len=32768, max_num_seqs=128,
        max_num_batched_tokens=8192, block_size=64, kv_cache_memory=2**34, enable_prefix_caching=False,
        enforce_eager=True, speculative_method="mtp", num_speculative_tokens=1,
        options={
            "free_gpu_memory_fraction": Fraction(85, 100), "max_tokens": 10**6,
            "max_attention_window": (512, 32768), "enable_attention_dp": True,
            "use_kv_cache_manager_v2": True, "max_util_for_resume": Fraction(9, 10),
            "moe_expert_parallel_size": 2, "kv_retention": "sinks:0,window:4096",
            "capacity_scheduler_policy": "MAX_UTILIZATION", "enable_chunked_prefill": True,
            "context_chunking_policy": "EQUAL_PROGRESS", "enable_partial_reuse": False,
            "disable_overlap_scheduler": True,
        },
    )  # fmt: skip


def _llamacpp() -> Plan:
    return plan(
        "llamacpp@0.5", "rtx-3090", 2, model="/data/m.gguf",
        serve=(
            ("host", "127.0.0.1"), ("port", 9000), ("served_model_name", "chat"), ("chat_template", "chatml"),
        ),
        pipeline_parallel_size=2, kv_cache_dtype="q8_0", enable_prefix_caching=False,
        speculative_method="mtp", num_speculative_tokens=2,
        options={
            "ctx_size": 65536, "parallel": 4, "kv_unified": False, "n_gpu_layers": 99, "cache_type_k": "q8_0",
            "cache_type_v": "q8_0", "ubatch_size": 4096, "swa_full": True, "flash_attn": True,
            "kv_retention": "sinks:4,window:8000",
            "fit": True, "fit_target": 2**29, "fit_ctx": 8192,
            "override_kv": '{"llama.context_length": 65536}', "rope_scaling": "yarn",
            "rope_scale": Fraction(4), "yarn_orig_ctx": 32768,
            "kv_offload": False, "mmproj_offload": False, "n_cpu_moe": 12, "cpu_moe": True,
            "tensor_split": (Fraction(2), Fraction(1)),
            "override_tensor": ("19.down.gpu1", "30-31.exps"),
        },
    )  # fmt: skip


def _transformers() -> Plan:
    return plan(
        "transformers@5.23",
        serve=(("host", "127.0.0.1"), ("port", 9000), ("trust_remote_code", True)),
        dtype="bfloat16", block_size=128, num_gpu_blocks_override=1000, max_num_batched_tokens=4096,
        options={
            "continuous_batching": True, "attn_implementation": "flash_attention_2",
            "max_memory_percent": Fraction(85, 100), "use_cuda_graph": False,
        },
    )  # fmt: skip


def _tgi() -> Plan:
    return plan(
        "tgi@3.3", gpus=2,
        serve=(("host", "127.0.0.1"), ("port", 9000), ("trust_remote_code", True), ("revision", "main")),
        tensor_parallel_size=2, dtype="bfloat16", kv_cache_dtype="fp8", max_model_len=32768,
        max_num_seqs=64, max_num_batched_tokens=4096, quantization="fp8",
        options={"cuda_memory_fraction": Fraction(95, 100), "max_concurrent_requests": 64, "speculate": 2},
    )  # fmt: skip


def _mlx() -> Plan:
    return plan(
        "mlx@0.32",
        serve=(
            ("host", "127.0.0.1"), ("port", 9000), ("trust_remote_code", True),
            ("chat_template", "a b.jinja"),
        ),
        max_num_seqs=4, max_num_batched_tokens=512,
        options={
            "prompt_concurrency": 2, "prompt_cache_size": 3, "prompt_cache_bytes": 2**33, "kv_bits": "8",
            "kv_group_size": "32", "quantized_kv_start": 0,
        },
    )  # fmt: skip
