"""An answer of SGLang's own planner held beside kvplan's.

A question is one of SGLang's: GPU, server arguments in its own names, bytes that are left for the cache
(its ``rest_memory``; `kvplan`'s kv_cache_memory). `ours` asks kvplan the same, `differences` names the fields
that are not equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from kvplan.api import load_gpu, make_settings
from kvplan.engines.base import has_kind
from kvplan.engines.sglang.answer_settings import image_reserve
from kvplan.engines.sglang.engine import Sglang, allocations, pools_of
from kvplan.engines.sglang.versions import VERSIONS
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.model import Model

GPUS = {
    "h100": "h100-sxm-80gb",
    "h200": "h200-sxm-141gb",
    "a100": "a100-sxm-80gb",
    "b200": "b200-sxm-180gb",
    "l40s": "l40s-48gb",
    "l4": "l4-24gb",
    "b300": "b300-sxm-288gb",
    "gb200": "gb200-186gb",
    "h20": "h20-96gb",
    "a100_40": "a100-sxm-40gb",
    "a10": "a10-24gb",
    "rtx4090": "rtx-4090-24gb",
    "rtx3060": "rtx-3060-12gb",
    "rtx5090": "rtx-5090-32gb",
    "pro6000": "rtx-pro-6000-workstation-96gb",
    "t4": "t4-16gb",
    "thor": "jetson-agx-thor-128gb",
    "mi300x": "mi300x-192gb",
    "mi355x": "mi355x-288gb",
    "gb10": "gb10-128gb",
}
NAMES = {
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "dcp_size": "decode_context_parallel_size",
    "page_size": "block_size",
    "context_length": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "mamba_ssm_dtype": "mamba_ssm_cache_dtype",
    "disable_cuda_graph": "enforce_eager",
}
"""SGLang's argument → kvplan's option, where the names are not the same."""
SPECULATION = {
    "EAGLE": "mtp",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
}
UNDIVIDED = "tensor-parallel ranks"
UNHEARD = frozenset(("enable_hierarchical_cache",))
"""What decides nothing of the pools on the GPU."""


def options_of(args: Mapping[str, Any]) -> dict[str, Any]:
    """SGLang's arguments as kvplan's options. Speculation is a chain of the model's own layers."""
    asked = {
        NAMES.get(name, name): value
        for name, value in args.items()
        if not name.startswith("spec") and name not in UNHEARD
    }
    if "speculative_algorithm" in args:
        asked["speculative_method"] = SPECULATION[args["speculative_algorithm"]]
        asked["num_speculative_tokens"] = args["speculative_num_draft_tokens"] - 1
    return {name: str(value) if isinstance(value, float) else value for name, value in asked.items()}


@cache
def gpu_of(name: str) -> Gpu:
    return load_gpu(GPUS[name])


def ours(
    model: Model, case: Mapping[str, Any], version: str = VERSIONS[-1], draft: Model | None = None
) -> dict[str, Any]:
    """kvplan's answer to the question, in SGLang's words; ``refused`` where it is none. draft: a draft model
    of its own."""
    options = {**options_of(case["args"]), "gpu": gpu_of(case["gpu"]), "kv_cache_memory": case["rest_memory"]}
    if draft is not None:
        options["speculative_model"] = draft
    try:
        settings = make_settings(tokens=1, **options)
        result = Sglang().size(model, settings, version)
        if result.refusal is not None:
            said = f"{result.refusal.code}: {result.refusal.message}"
            return {"refused": said, "later": result.refusal.message.endswith(UNDIVIDED)}
        shown = result.settings
        made = pools_of(model, settings, version)
        assert made is not None
        pools = {one.name: one for one in allocations(model, settings, version)[0]}
    except KvplanError as error:
        return {"refused": f"{error.code}: {error.message}"}
    found = {
        "tokens": shown["max_total_num_tokens"],
        "window": shown.get("swa_max_total_num_tokens"),
        "requests": shown["max_running_requests"],
        "page": shown["page_size"],
        "context": shown["context_len"],
        "chunk": shown["chunked_prefill_size"],
        "graph": shown["cuda_graph_max_bs"],
        "dtype": shown["dtype"],
        "kv": _RECORDS.get(shown["kv_cache_dtype"], shown["kv_cache_dtype"]),
        "backend": "+".join(
            dict.fromkeys(
                (
                    shown["attention_backend"],
                    shown.get("decode_attention_backend", shown["attention_backend"]),
                )
            )
        ),
        "fraction": shown["mem_fraction_static"],
        "images": image_reserve(model, made.arguments),
        "slots": shown.get("max_mamba_cache_size"),
        "per_request": shown.get("state_slots_per_request"),
        "table_bytes": shown["req_to_token_bytes"],
    }
    rows = [one.k_bytes + one.v_bytes for name, one in pools.items() if name in ("full", "window")]
    if rows or not has_kind(model, Kind.COMPRESSED):  # of DeepSeek-V4 the tensors are not listed
        found["kv_bytes"] = sum(rows)
    state = pools.get("state")
    found["state_bytes"] = 0 if state is None else state.k_bytes + state.v_bytes
    return found


_RECORDS = {"fp8_ds_mla": "fp8_e4m3", "nvfp4": "fp4", "fp4_mx_block16": "fp4"}
"""Formats whose element type is another's."""
_KV_WORDS = {
    "float4_e2m1fn_x2": "fp4",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fnuz": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
_KV = ("k_buffer", "v_buffer", "kv_buffer")
_STATE = ("mamba_cache.conv", "mamba_cache.temporal")


def theirs(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of SGLang's answer."""
    if "refused" in answer or "error" in answer:
        refused = answer.get("refused") or answer
        return {"refused": refused if isinstance(refused, str) else refused["error"]}
    said, config, states = answer["resolved"], answer["pool_config"], answer.get("mamba", {})
    backends = list(dict.fromkeys(said["attention_backend"]))
    tensors = answer["tensors"]
    return {
        "tokens": config["max_total_num_tokens"],
        "window": config.get("swa_max_total_num_tokens"),
        "requests": config["max_running_requests"],
        "page": said["page_size"],
        "context": said["context_len"],
        "chunk": said["chunked_prefill_size"],
        "graph": said["cuda_graph_max_bs"],
        "dtype": said["dtype"],
        "kv": _KV_WORDS.get(answer["kv_dtype"], answer["kv_dtype"]),
        "backend": "+".join(backends),
        "fraction": said["mem_fraction_static"],
        "images": answer["mm_reserved_bytes"],
        "slots": states.get("max_mamba_cache_size"),
        "per_request": states.get("slots_per_request"),
        "table_bytes": _bytes(tensors["req_to_token"], ("req_to_token",), exact=True),
        "kv_bytes": _bytes(tensors["token_to_kv"], _KV),
        "state_bytes": _bytes(tensors["req_to_token"], _STATE),
    }


def recorded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of `sglang_ask`, with kvplan's words for element types."""
    if "refused" in answer:
        return dict(answer)
    return {**answer, "kv": _KV_WORDS.get(answer["kv"], answer["kv"])}


def _bytes(pool: tuple[str, list[list[Any]]], names: tuple[str, ...], *, exact: bool = False) -> int:
    total = 0
    for name, _shape, _dtype, _count, size in pool[1]:
        short = name.removesuffix("[]")
        if short in names if exact else any(short.endswith(one) for one in names):
            total += size
    return total


def differences(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names of the fields that are not equal; ``only SGLang refuses`` and the like stand alone.

    What stops SGLang as it makes the weights its planner does not know: it answers for heads that the ranks
    do not divide.
    """
    if "refused" in mine or "refused" in other:
        if ("refused" in mine and "refused" in other) or mine.get("later"):
            return []
        return ["only kvplan refuses" if "refused" in mine else "only SGLang refuses"]
    found = []
    for name, value in other.items():
        if name not in mine:
            continue
        own = mine[name]
        if name == "fraction":
            if abs(Fraction(own) - Fraction(value)) > Fraction(1, 10**9):
                found.append(name)
        elif (own or None) != (value or None):
            found.append(name)
    return found
