"""Which flags each engine has in a plan's ``serve:``, and the flags that some settings come to.

The names are those of the servers' own arguments with underscores: vllm-project/vllm
vllm/engine/arg_utils.py, sgl-project/sglang python/sglang/srt/server_args.py, NVIDIA/TensorRT-LLM
tensorrt_llm/llmapi/llm_args.py, ggml-org/llama.cpp common/arg.cpp.
"""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache

from kvplan.engines import choose_engine
from kvplan.engines.own_options import OPTIONS_OF, SPREAD
from kvplan.model import Model
from kvplan.plans.flags import EngineFlags, Flag
from kvplan.record import field_names, record
from kvplan.settings import LONGEST, Settings
from kvplan.units import GB, GIB

_QUESTION = """tokens encoder_tokens answer_tokens requests gpu usage weights engine_options
cache_implementation speculative_method num_speculative_tokens speculative_model media
kv_cache_memory spread""".split()
"""Settings that are no flag of a server, or have a flag of another name."""
_COMMON = [name for name in field_names(Settings) if name not in _QUESTION]
_KIND_OF = {
    **dict.fromkeys(("gpu_memory_utilization", "cpu_offload_gb"), "number"),
    **dict.fromkeys(("max_num_batched_tokens", "block_size"), "length"),
    "max_model_len": "longest",
    "kv_cache_memory": "size",
    "speculative": "speculative",
}
_OWN_KINDS = {"count": "count", "flag": "switch", "word": "word", "share": "number", "ratio": "number",
              "counts": "list", "shares": "list", "words": "list"}  # fmt: skip
_PLAIN = ("dtype", "kv_cache_dtype", "quantization")
_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel",
    "kv_dtype": "kv_cache_dtype",
    "q": "quantization",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "speculative": "speculative_config",
}
_KEPT = "host port served_model_name trust_remote_code revision chat_template tool_call_parser".split()
_KEPT_BY = {
    "vllm": "kv_offloading_size kv_offloading_backend".split(),
    "sglang": "enable_hierarchical_cache hicache_size hicache_write_policy".split(),
}


@record()
class HostTier:
    """The flag that gives an engine a cache tier in host memory: so many units of bytes for one GPU, or for
    a whole engine. needs: flags that go with it."""

    flag: str
    unit_bytes: int
    each_gpu: bool

    needs: tuple[tuple[str, object], ...] = ()

    def flags(self, amount: int, gpus: int, engines: int) -> tuple[tuple[tuple[str, object], ...], int]:
        """(flags that give the GPUs of a plan so many bytes at most, the bytes that they come to)."""
        ways = gpus if self.each_gpu else engines
        units = amount // ways // self.unit_bytes
        return ((*self.needs, (self.flag, units)) if units else ()), units * self.unit_bytes * ways


HOST_TIERS = {
    "vllm": HostTier("kv_offloading_size", GIB, each_gpu=False),
    "sglang": HostTier("hicache_size", GB, each_gpu=True, needs=(("enable_hierarchical_cache", True),)),
}
"""vllm-project/vllm 0.32 vllm/config/cache.py (GiB, all ranks of one engine together); sgl-project/sglang
0.5.23 mem_cache/pool_host/base.py (10^9 bytes, one rank)."""
_NAMES: dict[str, dict[str, str]] = {
    "vllm": {
        **{name: name for name in _COMMON},
        "kv_cache_memory_bytes": "kv_cache_memory",
        "speculative_config": "speculative",
    },
    "sglang": {
        **dict.fromkeys(("tp_size", "tensor_parallel_size"), "tensor_parallel_size"),
        **dict.fromkeys(("pp_size", "pipeline_parallel_size"), "pipeline_parallel_size"),
        **dict.fromkeys(("dp_size", "data_parallel_size"), "data_parallel_size"),
        "dcp_size": "decode_context_parallel_size",
        "context_length": "max_model_len",
        "max_running_requests": "max_num_seqs",
        "page_size": "block_size",
        "attention_backend": "attention_backend",
        "disable_cuda_graph": "enforce_eager",
        "mamba_ssm_dtype": "mamba_ssm_cache_dtype",
        "speculative_config": "speculative",
        **{name: name for name in _PLAIN},
    },
    "trtllm": {
        "tensor_parallel_size": "tensor_parallel_size",
        "pipeline_parallel_size": "pipeline_parallel_size",
        "enable_expert_parallel": "enable_expert_parallel",
        "max_seq_len": "max_model_len",
        "max_batch_size": "max_num_seqs",
        "max_num_tokens": "max_num_batched_tokens",
        "tokens_per_block": "block_size",
        "enable_block_reuse": "enable_prefix_caching",
        "speculative_config": "speculative",
        "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
        **{name: name for name in _PLAIN},
    },
    "llamacpp": {},
    "transformers": {**{name: name for name in _PLAIN}, "cache_implementation": "cache_implementation"},
    "generic": {
        **{name: name for name in _PLAIN},
        **{name: name for name in _COMMON if name.endswith("_parallel_size")},
    },
}
"""Engine → flag → setting."""
_SHORT_OF = {
    "sglang": {"tp": "tp_size", "pp": "pp_size", "dp": "dp_size", "kv_dtype": "kv_cache_dtype",
               "max_model_len": "context_length", "max_num_seqs": "max_running_requests",
               "block_size": "page_size", "enforce_eager": "disable_cuda_graph",
               "gpu_memory_utilization": "mem_fraction_static"},
    "trtllm": {"tp_size": "tensor_parallel_size", "tp": "tensor_parallel_size",
               "pp_size": "pipeline_parallel_size", "pp": "pipeline_parallel_size",
               "max_model_len": "max_seq_len", "max_num_seqs": "max_batch_size",
               "max_num_batched_tokens": "max_num_tokens", "block_size": "tokens_per_block",
               "gpu_memory_utilization": "free_gpu_memory_fraction"},
    "llamacpp": {"c": "ctx_size", "np": "parallel", "ctk": "cache_type_k", "ctv": "cache_type_v",
                 "ub": "ubatch_size", "fa": "flash_attn", "ngl": "n_gpu_layers",
                 "max_model_len": "ctx_size", "max_num_seqs": "parallel",
                 "kv_cache_dtype": "cache_type_k", "kv_dtype": "cache_type_k"},
}  # fmt: skip


@cache
def flags_of(spec: str) -> EngineFlags:
    """The flags of ``vllm`` or ``vllm@0.32``; the newest known release where none is named.

    Raises KvplanError(unknown-engine | bad-version).
    """
    choice = choose_engine(spec)
    name = choice.engine.name
    flags = {flag: Flag(flag, _kind(setting), setting) for flag, setting in _NAMES.get(name, {}).items()}
    for option in OPTIONS_OF.get(name, ()):
        if not option.served:
            continue
        flags[option.name] = Flag(option.name, _OWN_KINDS[option.kind], option.name, option.parse)
    for word in (*_KEPT, *_KEPT_BY.get(name, ())):
        flags.setdefault(word, Flag(word, "kept", None))
    short = {**_SHORT, **_SHORT_OF.get(name, {})}
    return EngineFlags(
        name,
        f"{name}@{choice.asked or choice.version}",
        flags,
        {word: long for word, long in short.items() if long in flags and word not in flags},
        None if choice.asked else f"no version of {name} is named: the rules of {choice.version} were taken",
        SPREAD.get(name),
    )


def _kind(setting: str) -> str:
    if setting in _KIND_OF:
        return _KIND_OF[setting]
    if setting == "quantization":
        return "word"
    default = _DEFAULTS[setting]
    if isinstance(default, bool) or setting in ("enable_prefix_caching", "async_scheduling"):
        return "switch"
    if isinstance(default, str) or setting == "attention_backend":
        return "word"
    return "count"


_DEFAULTS = {name: getattr(Settings(), name) for name in field_names(Settings)}


@cache
def flag_for(engine: str, setting: str) -> str | None:
    """The engine's flag for a setting or an own option; None where it has none."""
    found = (flag.name for flag in flags_of(engine).flags.values() if flag.setting == setting)
    return next(found, None)


def serve_of(settings: Settings, engine: str) -> tuple[tuple[str, object], ...]:
    """The flags, in the engine's order, whose values differ from the defaults of Settings.

    A planner that writes every resolved value sets it in the settings first. engine: ``vllm`` or
    ``vllm@0.32``. Raises KvplanError(unknown-engine).
    """
    own = dict(settings.engine_options)
    found: dict[str, tuple[str, object]] = {}
    for flag in flags_of(engine).flags.values():
        if flag.setting is None or flag.setting in found:
            continue
        if flag.own is not None:
            value = own.get(flag.setting)
        elif flag.setting == "speculative":
            value = _speculation(settings)
        else:
            value = getattr(settings, flag.setting)
            value = None if value == _DEFAULTS[flag.setting] else value
        if value is not None and flag.setting != flags_of(engine).spread:
            found[flag.setting] = (flag.name, written(value))
    return tuple(found.values())


def unsaid(settings: Settings, engine: str) -> tuple[str, ...]:
    """Settings that are not the default and that no flag of the engine says."""
    flags = flags_of(engine)
    said = {flag.setting for flag in flags.flags.values()} | {flags.spread}
    said |= {option.name for option in OPTIONS_OF.get(flags.engine, ()) if not option.served}
    plain = [name for name in _COMMON if name not in said and getattr(settings, name) != _DEFAULTS[name]]
    own = [name for name, value in settings.engine_options if value is not None and name not in said]
    draft = ["speculative_method"] if settings.num_speculative_tokens and "speculative" not in said else []
    return (*plain, *own, *draft)


def written(value: object) -> object:
    """A setting's value as a plan writes it."""
    if value == LONGEST and not isinstance(value, bool):
        return "auto"
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, tuple):
        return tuple(written(one) for one in value)
    return value


def draft_word(model: Model) -> str:
    """A draft as a plan names it: a card by its id, another source by where it was read."""
    return model.id if model.source.startswith("card:") else model.source


def _speculation(settings: Settings) -> str | None:
    if settings.speculative_method is None:
        return None
    entry: dict[str, object] = {
        "method": settings.speculative_method,
        "num_speculative_tokens": settings.num_speculative_tokens,
    }
    if settings.speculative_model is not None:
        entry["model"] = draft_word(settings.speculative_model)
    return json.dumps(entry, sort_keys=True)
