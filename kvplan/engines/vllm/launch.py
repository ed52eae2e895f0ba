"""How vLLM's server is called: vllm-project/vllm 0.8.5 to 0.33, vllm/entrypoints/cli/serve.py,
vllm/utils/argparse_utils.py and vllm/engine/arg_utils.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvplan.engines.launch import Serve, Server, as_object, config_override
from kvplan.engines.vllm.options import EXPANDABLE, OPTIONS
from kvplan.units import GB, GIB, KB, KIB, MB, MIB, TB, TIB

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)
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
    "--compilation-config": ("cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"),
}
"""Options that are objects → the keys that a plan has."""
_AS_EVER = (("mode", 3), ("mode", "VLLM_COMPILE"), ("level", 3))
"""What vLLM does anyway (vllm/config/compilation.py, CompilationMode; CompilationLevel until 0.11)."""
_ALLOCATOR = "--pytorch-alloc-conf"
"""No flag of the server's: torch reads PYTORCH_CUDA_ALLOC_CONF, or PYTORCH_ALLOC_CONF since 2.9."""
_SAMPLER = "--flashinfer-sampler"
"""No flag of the server's: VLLM_USE_FLASHINFER_SAMPLER is a number (vllm/envs.py)."""
_LEVEL = "--optimization-level"
"""0: neither compiled code nor graphs; 1: piecewise graphs; 2 and 3 have the same (vllm/config/vllm.py,
OPTIMIZATION_LEVEL_00 to _03; compilation levels until 0.11, of which 3 is the default)."""
_TASK, _TASKS = "--task", {"embed": "pooling", "embedding": "pooling", "classify": "pooling"}
"""What ``--runner`` was called, and its words (vllm/config/model.py, TaskOption, until 0.13)."""
_TASKS |= {"reward": "pooling", "score": "pooling", "generate": "generate", "auto": "auto"}
_RUNNER = "--model-runner"
_RUNNERS = {"0": "v1", "1": "v2", "v1": "v1", "v2": "v2", "auto": "auto"}
"""No flag of the server's: VLLM_USE_V2_MODEL_RUNNER is a number (vllm/envs.py)."""
_WORDS = {option.name: option.choices for option in OPTIONS}


def _said(key: str, value: object) -> object | None:
    """A key of such an object as a plan says it; None where it cannot be."""
    if _WORDS.get(key):
        word = value.lower() if isinstance(value, str) else ""  # null is the default, not the word none
        return word if word in _WORDS[key] else None
    numbers = value if isinstance(value, list) else [value]
    counted = all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in numbers)
    return value if counted and numbers else None


def translate(serve: Serve, options: Mapping[str, Any]) -> tuple[str, ...]:
    """``speculative_config`` with the three keys that a plan has; ``max_model_len -1`` is ``auto``."""
    given = as_object(options.get("--speculative-config", {})) or {}
    for flag, key in _PARTS.items():
        if flag in options:
            given[key] = options[flag]
    left = [f"--speculative-config.{key}" for key in given if key not in _PLAIN]
    tokens = given.get("num_speculative_tokens")
    if isinstance(tokens, str) and tokens.isdigit():
        given["num_speculative_tokens"] = int(tokens)
    kept = {key: given[key] for key in _PLAIN if given.get(key) is not None}
    if kept.get("method") in ("ngram", "ngram_gpu", "suffix"):
        kept.pop("model", None)
    if len(kept) >= 2 and "num_speculative_tokens" in kept:
        serve["speculative_config"] = kept
    elif given or "--speculative-config" in options:
        left = [f"--speculative-config.{key}" for key in given] or ["--speculative-config"]
    for flag, names in _OBJECTS.items():
        found = as_object(options.get(flag, {}))
        if found is None:
            left.append(flag)
        for key, value in (found or {}).items():
            said = _said(key, value) if key in names else None
            if said is not None:
                serve[key] = said
            elif (key, value) not in _AS_EVER:
                left.append(f"{flag}.{key} {value}")
    if EXPANDABLE.lower() in str(options.get(_ALLOCATOR, "")).lower():
        serve[_ALLOCATOR.lstrip("-").replace("-", "_")] = EXPANDABLE
    if (runner := str(options.get(_RUNNER, "")).strip()) in _RUNNERS:
        serve["model_runner"] = _RUNNERS[runner]
    elif runner:
        left.append(f"VLLM_USE_V2_MODEL_RUNNER={runner}")
    level = str(options.get(_LEVEL, "2"))
    if level == "0":
        serve["enforce_eager"] = True
    elif level == "1":
        serve.setdefault("cudagraph_mode", "piecewise")
    elif level not in ("2", "3"):
        left.append(f"{_LEVEL} {level}")
    if (task := str(options.get(_TASK, "auto"))) not in _TASKS:
        left.append(f"{_TASK} {task}")
    elif task != "auto":
        serve["runner"] = _TASKS[task]
    sampler = str(options.get(_SAMPLER, "1")).strip()
    if sampler == "0":
        serve["flashinfer"] = "no_sampler"
    elif sampler != "1":
        left.append(f"VLLM_USE_FLASHINFER_SAMPLER={sampler}")
    if options.get("--enable-chunked-prefill") is False:
        left.append("--no-enable-chunked-prefill")  # every release that is known chunks prompts by itself
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
    count=count,
    translate=translate,
    translated=(
        "--speculative-config", "--enable-chunked-prefill", *_OBJECTS, "--hf-overrides", *_PARTS, _ALLOCATOR,
        _RUNNER, _SAMPLER, _TASK, _LEVEL,
    ),
    options_file="--config",
    environment=(
        ("VLLM_ATTENTION_BACKEND", "attention_backend"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "any_length"),
        ("VLLM_USE_V2_MODEL_RUNNER", "model_runner"),
        ("VLLM_USE_FLASHINFER_SAMPLER", "flashinfer_sampler"),
        ("PYTORCH_CUDA_ALLOC_CONF", "pytorch_alloc_conf"),
        ("PYTORCH_ALLOC_CONF", "pytorch_alloc_conf"),
    ),
    variables=("VLLM_",),
    in_charts=True,
)  # fmt: skip
