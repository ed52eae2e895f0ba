"""Settings under names that several engines share: which engine has which, and the words they take.

Names are those of vLLM's arguments; an engine that calls the same thing otherwise is asked by its own name
(vllm-project/vllm 0.33 vllm/engine/arg_utils.py; sgl-project/sglang 0.5.23 server_args.py and
arg_groups/fields; NVIDIA/TensorRT-LLM 1.2 llmapi/llm_args.py; ggml-org/llama.cpp common/arg.cpp).

Speculative decoding in one value: a method and its tokens, or vLLM's dict or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from kvplan.engines.folders import FOLDERS
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import Json, field_names
from kvplan.settings import Settings, known_method

WEIGHING = """gpu_memory_utilization quantization enforce_eager enable_expert_parallel cpu_offload_gb weights
mem_fraction_static free_gpu_memory_fraction enable_lora""".split()
"""Settings that change what is left for the cache, and nothing where no GPU's memory is divided."""
_LORA = (
    "max_loras max_loras_per_batch max_lora_rank lora_dtype lora_target_modules fully_sharded_loras".split()
)

_DEFAULTS = Settings()


def given_settings(settings: Settings) -> Iterator[str]:
    """The settings whose values are not the defaults."""
    return (name for name in field_names(Settings) if getattr(settings, name) != getattr(_DEFAULTS, name))


def check_shared(engines: Iterable[str], settings: Settings) -> None:
    """Every setting that was given must be one of an asked engine's. Raises KvplanError(unknown-option)."""
    asked = tuple(engines)
    for name in given_settings(settings):
        ways = [traits_of(engine).foreign.get(name) for engine in asked]
        if asked and all(ways):
            raise KvplanError(
                "unknown-option",
                f"{' and '.join(asked)}: no option {name}",
                help=tuple(dict.fromkeys(way for way in ways if way)),
            )


def idle_settings(engine: str, model: Model, settings: Settings) -> tuple[str, ...]:
    """Warnings about what was given and can change nothing, with the way in which it would."""
    own = settings.own
    found: list[str] = []
    if settings.encoder_tokens and model.encoder is None:
        found.append(f"encoder_tokens has no effect: {model.id} reads no encoder")
    foreign = traits_of(engine).foreign
    found += [f"{name} does not count here: {foreign[name]}" for name in own if name in foreign]
    if settings.gpu is not None and engine not in FOLDERS:
        found.append(f"{engine} divides no GPU's memory: --gpu has no effect, --kv-cache-memory 16GiB has")
    if own.get("any_length") and settings.max_model_len is None:
        found.append("any_length has no effect without max_model_len: --max-model-len 64k")
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


def speculative(given: str | Json) -> tuple[str | None, int, str | None]:
    """``mtp:1``, or vLLM's dict or its JSON: method or model, and num_speculative_tokens.

    The method is None where the model decides it. Raises KvplanError(bad-setting).
    """
    text = given if isinstance(given, str) else str(dict(given))
    if not isinstance(given, str) or text.lstrip().startswith("{"):
        return _speculative_entry(given, text)
    method, _, number = text.strip().partition(":")
    tokens = int(number) if number.isascii() and number.isdigit() and len(number) <= 9 else 0
    if not method or tokens < 1:
        raise _bad_speculative(text)
    return known_method(method), tokens, None


def _speculative_entry(given: str | Json, text: str) -> tuple[str | None, int, str | None]:
    """The same of a dict or its JSON."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
        method, model, tokens = value.get("method"), value.get("model"), value["num_speculative_tokens"]
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise _bad_speculative(text) from error
    words = [word for word in (method, model) if word is not None]
    if not words or not all(isinstance(word, str) and word for word in words):
        raise _bad_speculative(text)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise _bad_speculative(text)
    return None if method is None else known_method(method), tokens, model


def _bad_speculative(text: str) -> KvplanError:
    return KvplanError(
        "bad-setting",
        f"{text!r} does not say which method and how many tokens",
        help=(
            'write mtp:1, or {"method": "mtp", "num_speculative_tokens": 1}',
            'a model of its own: {"model": "llama-3.2-1b", "num_speculative_tokens": 5}',
        ),
    )
