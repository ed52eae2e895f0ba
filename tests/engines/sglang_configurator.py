"""SGLang from 0.5.16 sizes its pools in KVCacheConfigurator: made as ModelRunner makes it, then asked.

Imported by `sglang_ask`, on the stage. What a release's functions and class do not take is not given: 0.5.21
took the ranks out of the class's arguments and into the published context.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def _called(function: Any, given: dict[str, Any]) -> Any:
    """The function with those of the arguments that it takes."""
    wanted = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in wanted})


class Resolved:
    """The resolved arguments, wherever the release keeps them: on them, or in a published context."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.context: Any = importlib.import_module("sglang.srt.runtime_context")

    def __call__(self, bag: str, name: str) -> Any:
        ask = getattr(self.context, f"get_{bag}", None)
        if ask is not None:
            try:
                return getattr(ask(), name)
            except AttributeError:
                pass
        return getattr(self.args, name)

    def publish(self) -> None:
        """As the scheduler's process does."""
        if hasattr(self.context, "SpawnRanks"):
            ranks = self.context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
            self.context.publish(self.args, role="scheduler", ranks=ranks)
        elif hasattr(self.context, "publish"):
            self.context.publish(self.args, role="scheduler")
        else:
            server = importlib.import_module("sglang.srt.server_args")
            server.set_global_server_args_for_scheduler(self.args)

    def graph(self) -> Any:
        """The largest batch of a decode graph."""
        execution = getattr(self.context, "get_exec", None)
        if execution is not None and hasattr(execution(), "graph"):
            return execution().graph.cuda_graph_config.decode.max_bs
        return self.args.cuda_graph_config.decode.max_bs

    def backends(self) -> list[str]:
        """Prefill's and decode's."""
        ask = getattr(self.context, "attention_backends", None)
        if ask is None:
            sizing = importlib.import_module("sglang.srt.mem_cache.kv_cache_configurator")
            ask = getattr(sizing, "attention_backends", None) or self.args.get_attention_backends
        return [str(backend) for backend in ask()]


def sized(case: dict[str, Any], args: Any, load: Any, step: list[str]) -> dict[str, Any]:
    """The answer of a release's KVCacheConfigurator to the case, whose arguments are resolved."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.mem_cache import kv_cache_configurator as sizing

    resolved = Resolved(args)
    resolved.publish()
    config = ModelConfig.from_server_args(args)
    step[0] = "model"
    model = load(config)
    importlib.import_module("sglang_runner").legacy(config)
    step[0] = "pools"
    _check_experts(args, config, resolved)
    with _widths(args, resolved):
        images = _images(sizing, config, resolved)
        free = case["rest_memory"] / (1 << 30) + images
        sizing.get_available_gpu_memory = lambda *_args, **_kwargs: free

        def stage(rank: int) -> tuple[Any, Any]:
            if args.pp_size > 1:
                model.start_layer, model.end_layer = sizing.get_pp_indices(
                    config.num_hidden_layers, rank, args.pp_size
                )
            made = _configurator(args, config, model, resolved)
            return made, made._resolve_memory_pool_config(0)

        if args.pp_size > 1:
            _least_of_all(stage, args.pp_size)
        pools, found = stage(0)
        states = pools.mambaish_config is not None
        per_request = pools._calculate_mamba_ratio() if states else None
    return {
        "tokens": found.max_total_num_tokens,
        "window": found.swa_max_total_num_tokens or None,
        "requests": found.max_running_requests,
        "page": resolved("schedule", "page_size"),
        "context": config.context_len,
        "chunk": resolved("schedule", "chunked_prefill_size"),
        "graph": resolved.graph(),
        "dtype": str(config.dtype).removeprefix("torch."),
        "kv": str(pools.kv_cache_dtype).removeprefix("torch."),
        "backend": "+".join(dict.fromkeys(resolved.backends())),
        "fraction": resolved("schedule", "mem_fraction_static"),
        "images": round(images * (1 << 30)),
        "slots": resolved("schedule", "max_mamba_cache_size") if states else None,
        "per_request": per_request,
    }


def _least_of_all(stage: Callable[[int], Any], count: int) -> None:
    """Pipeline stages agree on the least: each is asked in a fork what it brings to the reduction, and from
    then on a reduction gives the least of what was brought to it."""
    import torch

    brought = [_brought(stage, rank) for rank in range(count)]
    turns = iter([min(values) for values in zip(*brought, strict=True)])

    def reduce(tensor: Any, *_args: Any, **_named: Any) -> None:
        tensor.fill_(next(turns))

    torch.distributed.all_reduce = reduce


def _brought(stage: Callable[[int], Any], rank: int) -> list[int]:
    import torch

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        values: list[int] = []
        torch.distributed.all_reduce = lambda tensor, *_args, **_named: values.append(int(tensor.item()))
        try:
            stage(rank)
            said: Any = values
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    if isinstance(said, str):
        raise RuntimeError(said)  # noqa: TRY004
    return list(said)


def _check_experts(args: Any, config: Any, resolved: Resolved) -> None:
    """What ModelRunner holds against the ranks before it loads."""
    setup = importlib.import_module("sglang.srt.model_executor.model_runner_components.moe_ep_setup")
    given = {
        "model_config": config, "tp_size": args.tp_size, "moe_dp_size": 1, "server_args": args,
        "moe_ep_size": resolved("parallel", "ep_size"),
    }  # fmt: skip
    _called(setup.check_quantized_moe_compatibility, given)


def _images(sizing: Any, config: Any, resolved: Resolved) -> float:
    """GiB that are kept for images' features (0.5.20 and later)."""
    if not hasattr(sizing, "mm_runtime_reservation_gb"):
        return 0.0
    transport = resolved("mm", "mm_feature_transport")
    return float(
        sizing.mm_runtime_reservation_gb(is_multimodal=config.is_multimodal, mm_feature_transport=transport)
    )


def _widths(args: Any, resolved: Resolved) -> AbstractContextManager[Any]:
    """Process groups of as many ranks as the arguments say, of which this process is the first."""
    ranks = importlib.import_module("sglang_stage").Ranks
    parallel = resolved.context.get_parallel()
    if hasattr(resolved.context, "SpawnRanks"):  # it derives them from the arguments
        return parallel.override(world_group=ranks(parallel.launch_world_size))  # type: ignore[no-any-return]
    importlib.import_module("sglang_runner").device_free(args)
    groups = _attention_groups(args, resolved)
    sizes = {
        "world_size": args.tp_size * args.pp_size, "tp_size": args.tp_size, "pp_size": args.pp_size,
        "attn_tp_size": args.tp_size // groups, "attn_dp_size": groups, "attn_cp_size": 1,
        "dcp_enabled": False, "dcp_size": 1, "attn_dcp_size": 1, "world_group": ranks(args.tp_size),
    }  # fmt: skip
    known = resolved.context._PARALLEL_FIELDS
    return parallel.override(**{name: size for name, size in sizes.items() if name in known})  # type: ignore[no-any-return]


def _configurator(args: Any, config: Any, model: Any, resolved: Resolved) -> Any:
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.mem_cache import kv_cache_configurator as sizing
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    parts = "sglang.srt.model_executor.model_runner_components"
    setup = importlib.import_module(f"{parts}.layer_setup")
    loading = importlib.import_module(f"{parts}.load_model_utils")
    drafts = importlib.import_module(f"{parts}.spec_aux_hidden_state")
    stage = importlib.import_module("sglang_stage")
    spec = SpeculativeAlgorithm.from_string(resolved("spec", "speculative_algorithm"))
    groups = _attention_groups(args, resolved)
    given: dict[str, Any] = {
        "server_args": args, "model_config": config, "model": model, "spec_algorithm": spec,
        "is_draft_worker": False, "model_dtype": config.dtype,
        "server_args_kv_cache_dtype": resolved("model", "kv_cache_dtype"),
        "is_dflash": spec.is_dflash_family(), "speculative_draft_attention_backend": None,
        "device": "cuda", "gpu_id": 0, "attn_dp_size": groups, "pp_size": args.pp_size,
        "pp_group": stage.Ranks(), "page_size": resolved("schedule", "page_size"),
        "post_capture_kv_active": False, "is_hybrid_swa": config.is_hybrid_swa,
        "is_hybrid_swa_compress": config.is_hybrid_swa_compress,
        "use_mla_backend": config.attention_arch == AttentionArch.MLA,
        "forward_stream": stage.make_prop("Stream")(), "req_to_token_pool": None,
        "token_to_kv_pool_allocator": None, "memory_pool_config": None,
    }  # fmt: skip
    layers = _called(setup.resolve_layer_indices, given)
    window = loading.resolve_sliding_window_size(model, config)
    word, kv = _called(configure_kv_cache_dtype, given)
    given |= {
        "spec_aux_config": _called(drafts.resolve_spec_aux_hidden_state_config, given),
        "layer_info": layers,
        "kv_cache_dtype": kv,
        "kv_cache_dtype_str": given["server_args_kv_cache_dtype"] if word is None else word,
        "sliding_window_size": None if isinstance(window, int) and window < 0 else window,
    }
    if "ps" in inspect.signature(sizing.KVCacheConfigurator).parameters:
        state = importlib.import_module("sglang.srt.distributed.parallel_state_wrapper").ParallelState
        width = args.tp_size // groups
        given["ps"] = state.trivial(
            tp_size=args.tp_size,
            attn_tp_size=width,
            attn_dp_size=groups,
            dp_size=args.dp_size,
            pp_size=args.pp_size,
        )
    return _called(sizing.KVCacheConfigurator, given)


def _attention_groups(args: Any, resolved: Resolved) -> int:
    if hasattr(resolved.context, "SpawnRanks"):
        return int(resolved.context.get_parallel().attn_dp_size)
    return int(args.dp_size) if args.enable_dp_attention else 1
