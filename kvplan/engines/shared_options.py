"""Settings under names that several engines share: which engine has which, and the words they take.

Names are those of vLLM's arguments; an engine that calls the same thing otherwise is asked by its own name
(vllm-project/vllm 0.33 vllm/engine/arg_utils.py; sgl-project/sglang 0.5.23 server_args.py and
arg_groups/fields; NVIDIA/TensorRT-LLM 1.2 llmapi/llm_args.py; ggml-org/llama.cpp common/arg.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import field_names
from kvplan.settings import Settings

_VLLM_ONLY = "it belongs to --engine vllm"
_NO_STEPS = {
    **dict.fromkeys(("usage", "disable_hybrid_kv_cache_manager", "async_scheduling"), _VLLM_ONLY),
    "cpu_offload_gb": "state what stays on the GPU: --weights 15GiB",
}
_CACHE_CLASS = {"cache_implementation": "it belongs to --engine transformers"}
_NO_ALLOCATOR = "it belongs to the engines that serve, such as --engine vllm"
_SERVING = """gpu_memory_utilization quantization enforce_eager enable_expert_parallel cpu_offload_gb
disable_hybrid_kv_cache_manager attention_backend async_scheduling usage enable_prefix_caching""".split()
_BATCH = "max_num_seqs max_num_batched_tokens block_size num_gpu_blocks_override".split()
FOREIGN: dict[str, Mapping[str, str]] = {
    "vllm": _CACHE_CLASS,
    "sglang": {
        **_NO_STEPS,
        **_CACHE_CLASS,
        "gpu_memory_utilization": "SGLang's is --mem-fraction-static, and counts otherwise",
        "max_num_batched_tokens": "SGLang's is --chunked-prefill-size",
        "num_gpu_blocks_override": "SGLang's is --max-total-tokens",
        "disable_hybrid_kv_cache_manager": "SGLang's is --disable-hybrid-swa-memory",
        "async_scheduling": "SGLang's is --disable-overlap-schedule",
        "enable_prefix_caching": "SGLang's is --disable-radix-cache",
    },
    "trtllm": {
        **_NO_STEPS,
        **_CACHE_CLASS,
        "gpu_memory_utilization": "TensorRT-LLM's is --free-gpu-memory-fraction, and counts otherwise",
        "num_gpu_blocks_override": "TensorRT-LLM's is --max-tokens",
        "attention_backend": _VLLM_ONLY,
    },
    "llamacpp": {
        **_NO_STEPS,
        **_CACHE_CLASS,
        "gpu_memory_utilization": "llama.cpp allocates what --ctx-size needs",
        "max_num_seqs": "llama.cpp's is --parallel",
        "max_num_batched_tokens": "llama.cpp's is --ubatch-size",
        "block_size": "llama.cpp has no blocks",
        "num_gpu_blocks_override": "llama.cpp's is --ctx-size",
        "quantization": "the GGUF file decides it: give the file of that format, or what its weights take,"
        " such as --weights 5GiB",
        "dtype": "the GGUF file decides it; the cache's are --cache-type-k and --cache-type-v",
        "enforce_eager": _VLLM_ONLY,
        "enable_expert_parallel": "llama.cpp deals whole layers over its GPUs",
        "attention_backend": "llama.cpp's is --flash-attn",
        "mamba_cache_dtype": "llama.cpp keeps states in f32",
        "mamba_ssm_cache_dtype": "llama.cpp keeps states in f32",
    },
    "transformers": dict.fromkeys(_SERVING, _NO_ALLOCATOR),
    "generic": {**dict.fromkeys((*_SERVING, *_BATCH, "speculative_method"), _NO_ALLOCATOR), **_CACHE_CLASS},
}
"""Engine → settings that it does not have, with the way."""

WEIGHING = """gpu_memory_utilization quantization enforce_eager enable_expert_parallel cpu_offload_gb weights
mem_fraction_static free_gpu_memory_fraction enable_lora""".split()
"""Settings that change what is left for the cache, and nothing where no GPU's memory is divided."""
_LORA = (
    "max_loras max_loras_per_batch max_lora_rank lora_dtype lora_target_modules fully_sharded_loras".split()
)

_NO_BUDGET = ("generic", "transformers")

_DEFAULTS = Settings()


def given_settings(settings: Settings) -> Iterator[str]:
    """The settings whose values are not the defaults."""
    return (name for name in field_names(Settings) if getattr(settings, name) != getattr(_DEFAULTS, name))


def check_shared(engines: Iterable[str], settings: Settings) -> None:
    """Every setting that was given must be one of an asked engine's. Raises KvplanError(unknown-option)."""
    asked = tuple(engines)
    for name in given_settings(settings):
        ways = [FOREIGN.get(engine, {}).get(name) for engine in asked]
        if asked and all(ways):
            raise KvplanError(
                "unknown-option",
                f"{' and '.join(asked)}: no option {name}",
                help=tuple(dict.fromkeys(way for way in ways if way)),
            )


def idle_settings(engine: str, model: Model, settings: Settings) -> tuple[str, ...]:
    """Warnings about what was given and can change nothing, with the way in which it would."""
    own = dict(settings.engine_options)
    found: list[str] = []
    if settings.encoder_tokens and model.encoder is None:
        found.append(f"encoder_tokens has no effect: {model.id} reads no encoder")
    if settings.gpu is not None and engine in _NO_BUDGET:
        found.append(f"{engine} divides no GPU's memory: --gpu has no effect, --kv-cache-memory 16GiB has")
    if settings.data_parallel_size > 1 and engine != "vllm" and not own.get("enable_dp_attention"):
        found.append(f"data_parallel_size {settings.data_parallel_size}: replicas; the answer is that of one")
    if not own.get("enable_lora"):
        found += [f"{name} has no effect without enable_lora" for name in _LORA if name in own]
    if settings.gpu is not None and settings.kv_cache_memory is None:
        return tuple(found)
    given = set(given_settings(settings)) | {name for name, value in own.items() if value}
    idle = [name for name in WEIGHING if name in given]
    if idle:
        why = (
            "the pool is given by kv_cache_memory"
            if settings.kv_cache_memory is not None
            else "no GPU is named, so no pool is computed: --gpu h100"
        )
        found.append(f"{', '.join(idle)}: no effect here, as {why}")
    return tuple(found)
