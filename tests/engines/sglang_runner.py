"""SGLang before 0.5.16 sizes its pools in ModelRunner: its own steps, with recorders where pools are made.

Imported by `sglang_ask`, on the stage. ModelRunner.__init__ runs as it stands; what needs a device (process
groups, loading, kernels) is replaced, and it is left when the pools are made.
"""

from __future__ import annotations

import importlib
import sys
import types
from contextlib import suppress
from typing import Any


class MadeError(Exception):
    """The pools are made: what comes next launches kernels."""


def legacy(config: Any) -> None:
    """ModelRunner.load_model's first step: no bfloat16 before compute capability 8.0."""
    import torch

    if torch.cuda.get_device_capability()[0] < 8:
        config.dtype = torch.float16


class Pool:
    """A pool that was asked for: its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = kwargs
        self.size = kwargs.get("size", args[0] if args else None)
        self.mamba_pool = types.SimpleNamespace(size=kwargs.get("mamba_size"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


PLACES = (
    "sglang.srt.model_executor.model_runner",
    "sglang.srt.model_executor.model_runner_kv_cache_mixin",
    "sglang.srt.mem_cache.kv_cache_configurator",
)
LATER = (
    "init_cublas", "init_attention_backend", "init_cuda_graphs", "init_device_graphs",
    "init_routed_experts_capturer", "init_double_sparsity_channel_config", "kernel_warmup",
    "maybe_init_ngram_embedding",
)  # fmt: skip
"""Steps after the pools: the first of them ends the asking."""


def sized(case: dict[str, Any], args: Any, load: Any, step: list[str]) -> dict[str, Any]:
    """The answer of a release's ModelRunner to the case, whose arguments are resolved."""
    runner_module = importlib.import_module(PLACES[0])
    from sglang.srt.configs.model_config import ModelConfig

    if hasattr(ModelConfig, "from_server_args"):
        config = ModelConfig.from_server_args(args)
    else:
        config = ModelConfig(
            args.model_path, trust_remote_code=args.trust_remote_code, revision=args.revision,
            context_length=args.context_length, model_override_args=args.json_model_override_args,
            is_embedding=args.is_embedding, dtype=args.dtype, quantization=args.quantization,
        )  # fmt: skip
    step[0] = "model"
    device_free(args)
    model = load(config)
    free = case["rest_memory"] / (1 << 30)
    for place in PLACES:
        if place not in sys.modules:
            continue
        module = sys.modules[place]
        for name, value in list(vars(module).items()):
            if (
                isinstance(value, type)
                and name.endswith(("Pool", "PoolFP4", "Allocator"))
                and "Token" in name
            ):
                setattr(module, name, type(name, (Pool,), _constants(value)))
        for name in ("HybridLinearKVPool", "SWAKVPool"):
            if hasattr(module, name):
                setattr(module, name, type(name, (Pool,), {}))
        if hasattr(module, "get_available_gpu_memory"):
            setattr(module, "get_available_gpu_memory", lambda *_args, **_kwargs: free)  # noqa: B010
    device_free(args)  # once more, for what was imported since
    kind = runner_module.ModelRunner

    class Asked(kind):  # type: ignore[misc, valid-type]
        def init_torch_distributed(self) -> float:
            return 0.0

        def load_model(self) -> None:
            step[0] = "pools"
            self.model = model
            legacy(config)
            if hasattr(model, "get_attention_sliding_window_size"):  # 0.4.9 to 0.5.5 count its layers
                model.model = types.SimpleNamespace(layers=_layers(config))
            self.dtype = config.dtype
            self.sliding_window_size = _window(self, model, config)

    def stop(*_args: Any, **_kwargs: Any) -> Any:
        raise MadeError

    for name in LATER:
        if hasattr(kind, name):
            setattr(Asked, name, stop)
    made = object.__new__(Asked)
    named = {
        "model_config": config, "mem_fraction_static": args.mem_fraction_static, "gpu_id": 0, "tp_rank": 0,
        "tp_size": args.tp_size, "moe_ep_rank": 0, "moe_ep_size": getattr(args, "ep_size", 1), "pp_rank": 0,
        "pp_size": args.pp_size, "nccl_port": 1, "server_args": args, "dp_rank": None, "attn_cp_rank": 0,
        "moe_dp_rank": 0,
    }  # fmt: skip
    wanted = kind.__init__.__code__.co_varnames[: kind.__init__.__code__.co_argcount]
    with suppress(MadeError):
        Asked.__init__(made, **{name: value for name, value in named.items() if name in wanted})
    if hasattr(kind, "alloc_memory_pool"):  # 0.5.14 and later: the worker asks for the pools
        made.pre_model_load_memory = 0.0
        with suppress(MadeError):
            made.alloc_memory_pool()
    if hasattr(kind, "check_quantized_moe_compatibility"):  # after the pools, until 0.5.13
        made.check_quantized_moe_compatibility()
    states = getattr(made, "mambaish_config", None) or getattr(made, "is_hybrid_gdn", None)
    requests = getattr(made, "max_running_requests", None)
    if requests is None:  # before 0.5.7 the worker says how many run (managers/tp_worker.py)
        own = args.max_running_requests
        groups = args.dp_size if args.enable_dp_attention else 1
        most = made.max_total_num_tokens // 2 if own is None else own // groups
        requests = min(most, made.req_to_token_pool.size)
    return {
        "tokens": made.max_total_num_tokens,
        "window": getattr(made, "swa_max_total_num_tokens", None) or None,
        "requests": requests,
        "page": args.page_size,
        "context": config.context_len,
        "chunk": args.chunked_prefill_size,
        "graph": _largest_graph(args),
        "dtype": str(config.dtype).removeprefix("torch."),
        "kv": str(made.kv_cache_dtype).removeprefix("torch."),
        "backend": "+".join(dict.fromkeys(map(str, _backends(args)))),
        "fraction": getattr(made, "mem_fraction_static", args.mem_fraction_static),
        "slots": args.max_mamba_cache_size if states else None,
    }


def _constants(kind: type) -> dict[str, Any]:
    """Figures that a pool's class states: the runner reads them to size it."""
    named = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return {name: value for name, value in named.items() if name[0] != "_" and not hasattr(value, "__get__")}


def _largest_graph(args: Any) -> Any:
    if hasattr(args, "cuda_graph_max_bs"):
        return args.cuda_graph_max_bs
    return args.cuda_graph_config.decode.max_bs  # 0.5.14 and later


def _backends(args: Any) -> tuple[Any, Any]:
    if hasattr(args, "get_attention_backends"):
        prefill, decode = args.get_attention_backends()
        return prefill, decode
    return args.attention_backend, args.attention_backend


def _layers(config: Any) -> list[Any]:
    """What the count of window layers looks at, by the config's own list."""
    text = config.hf_text_config
    kinds = getattr(text, "layer_types", None) or []
    windows = [text.sliding_window if kind == "sliding_attention" else None for kind in kinds]
    return [
        types.SimpleNamespace(
            layer_id=place,
            self_attn=types.SimpleNamespace(attn=types.SimpleNamespace(sliding_window_size=window)),
        )
        for place, window in enumerate(windows)
    ]


def _window(runner: Any, model: Any, config: Any) -> Any:
    """ModelRunner.load_model, its last lines."""
    if hasattr(model, "get_attention_sliding_window_size"):
        return model.get_attention_sliding_window_size()
    if getattr(config, "is_hybrid_swa", False) and getattr(config, "sliding_window_size", None) is not None:
        return config.sliding_window_size
    if getattr(config, "attention_chunk_size", None) is not None:
        return config.attention_chunk_size
    return None


def device_free(args: Any) -> None:
    """Ranks of this many, and steps that want a device: put in every module that has taken the real ones."""
    ranks = importlib.import_module("sglang_stage").Ranks
    groups = args.dp_size if args.enable_dp_attention else 1
    width = args.tp_size // groups
    answers: dict[str, Any] = {
        "get_attention_tp_size": lambda: width, "get_attention_tp_group": lambda: ranks(width),
        "get_attention_tp_rank": lambda: 0, "get_attention_dp_size": lambda: groups,
        "get_world_group": lambda: ranks(args.tp_size), "get_tp_group": lambda: ranks(args.tp_size),
        "get_tensor_model_parallel_world_size": lambda: args.tp_size,
        "get_tensor_model_parallel_rank": lambda: 0, "get_tensor_model_parallel_group": ranks,
        "get_pp_group": ranks, "set_offloader": lambda *_: None,
        "create_offloader_from_server_args": lambda *_args, **_kwargs: None,
        "compute_initial_expert_location_metadata": lambda *_args, **_kwargs: None,
        "set_global_expert_location_metadata": lambda *_: None, "create_sampler": lambda *_: None,
        "sanity_check_mm_pad_shift_value": lambda *_: None, "apply_torchao_config_to_model": lambda *_: None,
    }  # fmt: skip
    for place, module in list(sys.modules.items()):
        if place.startswith("sglang.srt"):
            for name, value in answers.items():
                if name in vars(module):
                    setattr(module, name, value)
