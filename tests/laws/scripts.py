"""An emitted script read back: the engine's words to settings, without the table that wrote them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from fractions import Fraction
from typing import Any

import yaml

from kvplan.own_options import OwnOptions
from kvplan.plans.plan import Plan
from kvplan.plans.serve import flags_of, parse_flag
from kvplan.settings import Settings

_NOT_MEMORY = (
    "extra_llm_api_options", "port", "model", "model_path", "split_mode",
    "nnodes", "node_rank", "master_addr", "dist_init_addr",
)  # fmt: skip


def settings_of_script(text: str, plan: Plan) -> Settings:
    """What the first engine of a script is started with; the GPU is the plan's, which no flag says."""
    name = plan.engine.partition("@")[0]
    line = _line(text)
    pairs = dict(_pairs(_words(line)))
    if name == "trtllm":
        pairs |= _options(text)
    entry = _speculation(name, pairs)
    found: dict[str, Any] = {} if entry is None else {"speculative_config": entry}
    for flag, value in pairs.items():
        if flag in _NOT_MEMORY:
            continue
        found[flag] = value
    read = _settings(name, found, plan)
    # llama.cpp deals its layers over every GPU that it sees.
    return replace(read, pipeline_parallel_size=_devices(line)) if name == "llamacpp" else read


def _line(text: str) -> str:
    rows = text.replace("\\\n", " ").splitlines()
    return next(row for row in rows if "VISIBLE_DEVICES" in row)


def _devices(line: str) -> int:
    return len(line.partition("VISIBLE_DEVICES=")[2].split()[0].split(","))


def _words(line: str) -> list[str]:
    words = [word for word in shlex.split(line) if word != "&"]
    while "=" in words[0] and words[0].partition("=")[0].isupper():
        words.pop(0)
    return words


def _pairs(words: list[str]) -> list[tuple[str, Any]]:
    """(flag with underscores, its value) in turn; what comes before the first flag is the program."""
    pairs: list[tuple[str, Any]] = []
    place = next(place for place, word in enumerate(words) if word.startswith("--"))
    while place < len(words):
        flag = words[place].lstrip("-").replace("-", "_")
        place += 1
        values = []
        while place < len(words) and not words[place].startswith("--"):
            values.append(words[place])
            place += 1
        pairs.append((flag, yaml.safe_load(values[0]) if len(values) == 1 else values or True))
    return pairs


def _options(text: str) -> dict[str, Any]:
    """TensorRT-LLM's options file, whose keys of kv_cache_config stand for themselves."""
    _, start, rest = text.partition("kvplan-options.yaml <<'END_OF_OPTIONS'\n")
    if not start:
        return {}
    tree = yaml.safe_load(rest.partition("END_OF_OPTIONS\n")[0])
    cache = tree.pop("kv_cache_config", {})
    if "dtype" in cache:
        cache["kv_cache_dtype"] = cache.pop("dtype")
    return {**tree, **cache}


def _speculation(engine: str, pairs: dict[str, Any]) -> dict[str, Any] | None:
    """As a plan writes it, whatever the engine's own form is."""
    if engine == "vllm":
        entry: dict[str, Any] | str | None = pairs.pop("speculative_config", None)
        return dict(json.loads(entry)) if isinstance(entry, str) else entry
    if engine == "trtllm":
        own: dict[str, Any] | None = pairs.pop("speculative_config", None)
        return {"method": "mtp", "num_speculative_tokens": own["num_nextn_predict_layers"]} if own else None
    steps = pairs.pop("speculative_num_steps", None)
    if steps is None:
        return None
    assert pairs.pop("speculative_algorithm") == "NEXTN"
    assert pairs.pop("speculative_eagle_topk") == 1
    assert pairs.pop("speculative_num_draft_tokens") == steps + 1
    return {"method": "mtp", "num_speculative_tokens": steps}


def _settings(engine: str, found: dict[str, Any], plan: Plan) -> Settings:
    values: dict[str, Any] = {"gpu": plan.settings.gpu, "weights": plan.settings.weights}
    own: dict[str, Any] = {}
    if engine == "sglang" and found.pop("cuda_graph_backend_decode", None):
        assert found.pop("cuda_graph_backend_prefill") == "disabled"
        found["disable_cuda_graph"] = True
    if engine == "trtllm" and found.pop("ep_size", 1) > 1:
        found["enable_expert_parallel"] = True
    flags = flags_of(plan.engine)
    for name, value in found.items():
        negative = name.startswith("no_")
        plain = name.removeprefix("no_")
        flag = flags.flag(flags.short.get(plain, plain))
        parsed: Any = False if negative else parse_flag(flag, value)
        if flag.setting == "speculative":
            values |= {"speculative_method": parsed[0], "num_speculative_tokens": parsed[1]}
        elif flag.own is not None:
            own[str(flag.setting)] = parsed
        else:
            values[str(flag.setting)] = Fraction(parsed) if isinstance(parsed, float) else parsed
    return Settings(own=OwnOptions.of(own), **values)
