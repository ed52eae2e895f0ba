"""How vLLM's server is called: vllm-project/vllm 0.8.5 to 0.33, vllm/entrypoints/cli/serve.py,
vllm/utils/argparse_utils.py and vllm/engine/arg_utils.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kvplan.engines.dynamo import WRAPPED
from kvplan.engines.launch import Serve, Server, as_object, config_override
from kvplan.engines.vllm.options import EXPANDABLE, OPTIONS
from kvplan.later import regex
from kvplan.record import Json
from kvplan.units import GB, GIB, KB, KIB, MB, MIB, TB, TIB

_HUMAN = regex(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)
_UNITS = {"k": KB, "m": MB, "g": GB, "t": TB, "K": KIB, "M": MIB, "G": GIB, "T": TIB}


def count(text: str) -> int | None:
    """``32768``, ``32k`` (32,000), ``32K`` (32,768), ``25.6k``: ``human_readable_int`` of arg_utils.py."""
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    match = _HUMAN.fullmatch(text)
    if match is None or len(match[1]) > 18:
        return None
    whole, _, part = match[1].partition(".")
    unit = _UNITS[match[2]]
    scaled = int(whole + part) * unit
    return scaled // 10 ** len(part) if scaled % 10 ** len(part) == 0 else None


_PLAIN = ("method", "model", "num_speculative_tokens")
_PARTS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}


_OBJECTS = {
    "--attention-config": ("indexer_kv_dtype",),
    "--eplb-config": ("num_redundant_experts",),
    "--compilation-config": ("cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"),
}
"""Options that are objects → the keys that a plan has."""
_AS_EVER = (("mode", 3), ("mode", "VLLM_COMPILE"), ("level", 3))
"""Modes that vLLM uses anyway (vllm/config/compilation.py, CompilationMode; CompilationLevel until 0.11)."""
_ALLOCATOR = "--pytorch-alloc-conf"
"""No flag of the server's: torch reads PYTORCH_CUDA_ALLOC_CONF, or PYTORCH_ALLOC_CONF since 2.9."""
_POOLING, _GENERATING, _NOTHING = {"runner": "pooling"}, {"runner": "generate"}, dict[str, object]()
_SAYINGS: Mapping[str, tuple[str, Mapping[str, Mapping[str, object]]]] = {
    "--flashinfer-sampler": (
        "VLLM_USE_FLASHINFER_SAMPLER=", {"0": {"flashinfer": "no_sampler"}, "1": _NOTHING}
    ),
    "--graph-estimate": (
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=", {"0": {"estimate_cudagraphs": False}, "1": _NOTHING}
    ),
    "--model-runner": (
        "VLLM_USE_V2_MODEL_RUNNER=",
        {
            **{word: {"model_runner": "v1"} for word in ("0", "v1")},
            **{word: {"model_runner": "v2"} for word in ("1", "v2")},
            "auto": {"model_runner": "auto"},
        },
    ),
    "--device": ("--device ", {"auto": _NOTHING, "cuda": _NOTHING}),
    "--optimization-level": (
        "--optimization-level ",
        {
            "0": {"enforce_eager": True},
            "1": {"cudagraph_mode": "piecewise"},
            **dict.fromkeys(("2", "3"), _NOTHING),
        },
    ),
    "--task": (
        "--task ",
        {
            **dict.fromkeys(("embed", "embedding", "classify", "reward", "score"), _POOLING),
            "generate": _GENERATING,
            "auto": _NOTHING,
        },
    ),
}  # fmt: skip
"""Options in other words than a plan's → the form to show where they are not read, and by word the plan's
settings. The first three are numbers of the environment (vllm/envs.py). Levels: 0 has neither compiled code
nor graphs, 1 piecewise graphs, 2 and 3 the same (vllm/config/vllm.py, OPTIMIZATION_LEVEL_00 to _03;
compilation levels until 0.11, of which 3 is the default). ``--task`` is what ``--runner`` was called
(vllm/config/model.py, TaskOption, until 0.13)."""
_WORDS = {option.name: option.choices for option in OPTIONS}


def _said(key: str, value: object) -> object | None:
    """A key of such an object as a plan says it; None where it cannot be."""
    if _WORDS.get(key):
        word = value.lower() if isinstance(value, str) else ""  # null is the default, not the word none
        return word if word in _WORDS[key] else None
    numbers = value if isinstance(value, list) else [value]
    counted = all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in numbers)
    return value if counted and numbers else None


def _speculation(serve: Serve, options: Mapping[str, object]) -> Iterator[str]:
    """``speculative_config`` with the three keys that a plan has."""
    given = as_object(options.get("--speculative-config", {})) or {}
    for flag, key in _PARTS.items():
        if flag in options:
            given[key] = options[flag]
    tokens = given.get("num_speculative_tokens")
    if isinstance(tokens, str) and tokens.isdigit():
        given["num_speculative_tokens"] = int(tokens)
    kept = {key: given[key] for key in _PLAIN if given.get(key) is not None}
    if kept.get("method") in ("ngram", "ngram_gpu", "suffix"):
        kept.pop("model", None)
    if len(kept) >= 2 and "num_speculative_tokens" in kept:
        serve["speculative_config"] = kept
        yield from (f"--speculative-config.{key}" for key in given if key not in _PLAIN)
    elif given:
        yield from (f"--speculative-config.{key}" for key in given)
    elif "--speculative-config" in options:
        yield "--speculative-config"


def _keys(serve: Serve, options: Mapping[str, object]) -> Iterator[str]:
    """Options that are objects: the keys that a plan has."""
    for flag, names in _OBJECTS.items():
        found = as_object(options.get(flag, {}))
        if found is None:
            yield flag
        for key, value in (found or {}).items():
            said = _said(key, value) if key in names else None
            if said is not None:
                serve[key] = said
            elif (key, value) not in _AS_EVER:
                yield f"{flag}.{key} {value}"


def _sayings(serve: Serve, options: Mapping[str, object]) -> Iterator[str]:
    for flag, (shown, sayings) in _SAYINGS.items():
        word = str(options.get(flag, "")).strip()
        if word and word not in sayings:
            yield f"{shown}{word}"
        for key, said in sayings.get(word, _NOTHING).items():
            serve[key] = serve.get(key) or said


_TRANSFER = "--kv-transfer-config"
_LMCACHE, _LMCACHE_CLASS = "--lmcache-", "LMCacheConnectorV1"
_LMCACHE_KEYS = """chunk_size use_layerwise enable_pd pd_buffer_size pd_buffer_device enable_nixl
nixl_buffer_size nixl_buffer_device""".split()
"""Keys of LMCache that take memory of the GPU: LMCACHE_CHUNK_SIZE is chunk_size (lmcache/v1/config.py)."""


def _transfer(serve: Serve, options: Mapping[str, object]) -> Iterator[str]:
    """The connector, and beside it what variables say to LMCache: without it nothing reads them."""
    given = options.get(_TRANSFER)
    if given in (None, ""):
        return
    found = as_object(given)
    if found is None:
        yield f"{_TRANSFER} {given}"
        return
    said = {
        key: options[name] for key in _LMCACHE_KEYS if (name := _LMCACHE + key.replace("_", "-")) in options
    }
    if said and found.get("kv_connector") != _LMCACHE_CLASS:
        yield from (f"LMCACHE_{key.upper()}={value}" for key, value in said.items())
    elif said:
        extra = found.get("kv_connector_extra_config")
        own = {f"lmcache.{key}": value for key, value in said.items()}
        found = {**found, "kv_connector_extra_config": {**own, **(extra if isinstance(extra, dict) else {})}}
    serve["kv_transfer_config"] = found


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """The plan's settings for options in other words, and those that are left; ``max_model_len -1`` is
    ``auto``."""
    left = [*_speculation(serve, options), *_keys(serve, options), *_transfer(serve, options)]
    if EXPANDABLE.lower() in str(options.get(_ALLOCATOR, "")).lower():
        serve[_ALLOCATOR.lstrip("-").replace("-", "_")] = EXPANDABLE
    left += _sayings(serve, options)
    if options.get("--enable-chunked-prefill") is False:
        serve["enable_chunked_prefill"] = False
    if "--hf-overrides" in options:
        left += config_override(serve, options["--hf-overrides"], "--hf-overrides")
    if serve.get("max_model_len") == -1:
        serve["max_model_len"] = "auto"
    return tuple(left)


SERVER = Server(
    "vllm",
    starts=(
        ("vllm", "serve"), ("-m", "vllm.entrypoints.cli.main", "serve"), ("-m", "dynamo.vllm"),
        ("-m", "vllm.entrypoints.openai.api_server"), ("-m", "vllm.entrypoints.api_server"),
    ),
    model=("--model", "--model-tag"),
    images=("vllm-openai", "vllm-cpu", "vllm-rocm", "pytorch-vllm", "/llm-d", "/vllm"),
    tagged=("vllm-openai", "vllm-openai-rocm", "vllm-openai-cpu", "vllm-cpu-release-repo"),
    positional=True,
    renamed=WRAPPED,
    count=count,
    translate=translate,
    translated=(
        "--speculative-config", "--enable-chunked-prefill", *_OBJECTS, "--hf-overrides", *_PARTS, _ALLOCATOR,
        *_SAYINGS, _TRANSFER, *(_LMCACHE + key.replace("_", "-") for key in _LMCACHE_KEYS),
    ),
    objects=(
        (
            _TRANSFER,
            ("kv_connector", "kv_role", "kv_connector_module_path", "kv_buffer_size", "kv_buffer_device"),
        ),
    ),
    worded=("--enable-chunked-prefill",),
    options_file="--config",
    environment=(
        ("VLLM_ATTENTION_BACKEND", "attention_backend"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "any_length"),
        ("VLLM_USE_V2_MODEL_RUNNER", "model_runner"),
        ("VLLM_USE_FLASHINFER_SAMPLER", "flashinfer_sampler"),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "graph_estimate"),
        ("PYTORCH_CUDA_ALLOC_CONF", "pytorch_alloc_conf"),
        ("PYTORCH_ALLOC_CONF", "pytorch_alloc_conf"),
        *((f"LMCACHE_{key.upper()}", f"lmcache_{key}") for key in _LMCACHE_KEYS),
    ),
    variables=("VLLM_",),
    quiet=tuple(
        """API_KEY LOGGING_* LOG_* NO_USAGE_STATS DO_NOT_TRACK USAGE_* HOST_IP PORT RPC_* LOOPBACK_IP
        CACHE_ROOT CONFIG_ROOT ASSETS_CACHE* CONFIGURE_LOGGING TRACE_FUNCTION DEBUG_* HTTP_*
        ENGINE_READY_TIMEOUT_S ENGINE_ITERATION_TIMEOUT_S EXECUTE_MODEL_TIMEOUT_SECONDS
        *_FETCH_TIMEOUT MEDIA_* USE_MODELSCOPE WORKER_MULTIPROC_METHOD
        ENABLE_V1_MULTIPROCESSING NIXL_SIDE_CHANNEL_* NIXL_ABORT_REQUEST_TIMEOUT
        SLEEP_WHEN_IDLE DP_MASTER_* DP_RANK* TORCH_PROFILER_* ALLOW_RUNTIME_LORA_UPDATING
        TARGET_DEVICE USE_PRECOMPILED SKIP_P2P_CHECK SERVER_DEV_MODE KEEP_ALIVE_ON_ENGINE_DEATH
        RAY_DP_PACK_STRATEGY RAY_PER_WORKER_GPUS MSGPACK_ZERO_COPY_THRESHOLD
        RANDOMIZE_DP_DUMMY_INPUTS TOOL_* RESPONSES_* MODEL_REDIRECT_PATH LORA_RESOLVER_*
        IMAGE_TAG MAIN_* MOONCAKE_BOOTSTRAP_PORT USE_V1=1 LORA_MODULES_LOADING_TIMEOUT* SKIP_WARMUP
        SSM_CONV_STATE_LAYOUT ENABLE_CUDA_COMPATIBILITY CPU_KVCACHE_SPACE USE_TRITON_FLASH_ATTN
        API_SERVER_COUNT XLA_CACHE_PATH DISABLE_COMPILE_CACHE TEMPLATE_DIR""".split()
    ),
    optional=tuple(
        """--max-model-len --quantization --kv-cache-memory-bytes --max-num-batched-tokens --max-num-seqs
        --block-size --speculative-config --num-gpu-blocks-override --served-model-name --tokenizer --revision
        --code-revision --tokenizer-revision --max-cpu-loras --kv-offloading-size --attention-backend
        --distributed-executor-backend --reasoning-parser --hf-token --hf-config-path --download-dir
        --kv-transfer-config --chat-template --api-key --tool-call-parser --data-parallel-size-local
        --kv-sharing-fast-prefill --mm-encoder-tp-mode --seed""".split()
    ),
    package="vllm",
    calls=("LLM", "AsyncEngineArgs", "EngineArgs", "build_async_engine_client"),
    in_charts=True,
)  # fmt: skip
