"""vLLM's own start-up, driven as its engine core drives it, then its block manager filled until it refuses.

vllm-project/vllm 0.32: v1/engine/core.py (EngineCore._initialize_kv_caches), v1/executor/abstract.py,
v1/worker/gpu_worker.py (determine_available_memory), v1/core/kv_cache_manager.py (allocate_slots). The same
names stand in 0.11 to 0.34. Weights are random (``--load-format dummy``); everything is read from objects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kvplan.proof.validate.installed.workers._driver import at_first, flashinfer, grown

if TYPE_CHECKING:
    import torch

    from kvplan.proof.validate.installed.speaker import Speaker

_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_OF_WORKERS = (
    "requested_memory", "available_kv_cache_memory_bytes", "non_torch_memory", "peak_activation_memory",
    "total_consumed", "cudagraph_memory_estimate",
)  # fmt: skip
_LOADED = ("num_compiled_artifacts_loaded", "num_aot_artifacts_loaded")


def hello() -> dict[str, object]:
    """The installed release, and the device that it will run on. Nothing is put on the device."""
    os.environ.update(_QUIET)
    import torch
    import vllm
    from vllm.platforms import current_platform

    kind, name, total = current_platform.device_type, "cpu", None
    told: dict[str, object] = {}
    if kind != "cpu":
        name = current_platform.get_device_name()
        total = current_platform.get_device_total_memory()
        told = {"runtime": runtime_of(torch), **at_first()}
    return {
        "version": vllm.__version__,
        "torch": str(torch.__version__),
        "python": ".".join(map(str, sys.version_info[:3])),
        "device": name,
        "kind": kind,
        "nvml_total": total,
        "server": ["-m", "vllm.entrypoints.openai.api_server"],
        "hardware": told,
        "flashinfer": flashinfer(),
    }


def runtime_of(torch: Any) -> str | None:
    """``CUDA 13.0`` or ``ROCm 7.0``, as torch was built for it."""
    for name, version in (("ROCm", "hip"), ("CUDA", "cuda")):
        if getattr(torch.version, version, None):
            return f"{name} {getattr(torch.version, version)}"
    return None


def run(asked: dict[str, Any], speaker: Speaker) -> None:
    """Measure. asked: words, the arguments of ``vllm serve``. Of the requests that are admitted the length
    (tokens) and how many to try at most are answered once the blocks are known."""
    speaker.begin("configure")
    config = configured(asked["words"])
    speaker.say("measured", of="settings", values=settings_of(config))
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor

    from kvplan.proof.validate.installed.workers._vllm_requests import admitted, at_once

    built: dict[str, int] = {}
    if config.parallel_config.world_size == 1:
        config.parallel_config.distributed_executor_backend = "uni"  # in this process, also on a CPU
        _notice_weights(built)
    core = EngineCore(config, _watched(Executor.get_class(config), speaker), False)
    try:
        speaker.begin("read")
        workers = core.model_executor.collective_rpc(_by_value(look))
        workers[0].update(built)
        speaker.say("measured", of="workers", values=workers)
        speaker.say("measured", of="others", values={"grown": grown()})
        speaker.say("measured", of="cache", values=cache_of(core, config))
        speaker.begin("admit")
        shape = speaker.answered()
        if shape is not None:
            speaker.say("measured", of="requests", values=admitted(core, config, shape))
            if shape.get("running") is not None:
                speaker.begin("run at once")
                speaker.say("measured", of="running", values=at_once(core, config, shape))
        speaker.begin("end")
    finally:
        core.shutdown()


def configured(words: list[str]) -> Any:
    """The engine's configuration as ``vllm serve`` makes it of the same words."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # before 0.12
        from vllm.utils import FlexibleArgumentParser
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    try:
        arguments = parser.parse_args(words)
    except SystemExit as error:
        raise ValueError(f"vllm serve does not take {' '.join(words)}") from error
    return AsyncEngineArgs.from_cli_args(arguments).create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER
    )


def settings_of(config: Any) -> dict[str, object]:
    """The release's resolved settings on this platform, by kvplan's names."""
    cache, model, batch = config.cache_config, config.model_config, config.scheduler_config
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "kv_cache_dtype": cache.cache_dtype,
        "max_model_len": model.max_model_len,
        "max_num_seqs": batch.max_num_seqs,
        "max_num_batched_tokens": batch.max_num_batched_tokens,
        "block_size": cache.block_size,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "async_scheduling": bool(getattr(batch, "async_scheduling", False)),
        "enforce_eager": bool(model.enforce_eager),
        "mamba_cache_dtype": str(getattr(cache, "mamba_cache_dtype", "auto")),
        "mamba_ssm_cache_dtype": str(getattr(cache, "mamba_ssm_cache_dtype", "auto")),
    }


def _watched(executor: type, speaker: Speaker) -> type:
    """The engine's executor, saying which stage begins and what each rank has left for the cache."""

    def _init_executor(self: Any) -> None:
        speaker.begin("load_model")
        executor._init_executor(self)  # type: ignore[attr-defined]

    def determine_available_memory(self: Any) -> Any:
        speaker.begin("determine_available_memory")
        found = executor.determine_available_memory(self)  # type: ignore[attr-defined]
        speaker.say("measured", of="available", values=[int(one) for one in found])
        speaker.begin("get_kv_cache_configs")
        return found

    def initialize_from_config(self: Any, configs: Any) -> Any:
        speaker.begin("initialize_from_config")
        return executor.initialize_from_config(self, configs)  # type: ignore[attr-defined]

    methods = (_init_executor, determine_available_memory, initialize_from_config)
    return type("Watched", (executor,), {method.__name__: method for method in methods})


def _notice_weights(built: dict[str, int]) -> None:
    """Bytes of the parameters as the model is built, before kernels repack them (one rank, in this process).

    A platform that keeps the packed form alone (the CPU's) has no parameters left afterwards.
    """
    from vllm.model_executor.model_loader import base_loader

    whole = base_loader.process_weights_after_loading

    def noticed(model: torch.nn.Module, *words: object, **more: object) -> object:
        built["built_parameter_bytes"] = built.get("built_parameter_bytes", 0) + stored(model.parameters())
        return whole(model, *words, **more)

    base_loader.process_weights_after_loading = noticed


def _by_value(function: Any) -> Any:
    """A function that a process without kvplan can be sent."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    return function


def stored(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages under tensors, each once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def look(worker: Any) -> dict[str, object]:
    """One rank's own objects: weights, cache, and what its profile run found."""
    import torch

    worker = getattr(worker, "worker", worker)
    runner = worker.model_runner
    drafter = getattr(getattr(runner, "drafter", None), "model", None)
    models = [model for model in (runner.model, drafter) if isinstance(model, torch.nn.Module)]
    found = {
        "parameter_bytes": stored([one for model in models for one in model.parameters()]),
        "buffer_bytes": stored([one for model in models for one in model.buffers()]),
        "cache_bytes": stored(tensors_in(getattr(runner, "kv_caches", ()))),  # none before they are made
        "model_memory_bytes": getattr(runner, "model_memory_usage", None),
        **{name: getattr(worker, name, None) for name in _OF_WORKERS},
    }
    snapshot = getattr(worker, "init_snapshot", None)
    found["graphs_applied_bytes"] = _applied(found["cudagraph_memory_estimate"])
    found |= compiled()
    found["free_before_bytes"] = getattr(snapshot, "free_memory", None)
    found["total_bytes"] = getattr(snapshot, "total_memory", None)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["free_after_bytes"] = torch.cuda.mem_get_info()[0]
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["unified_memory"] = bool(getattr(torch.cuda.get_device_properties(0), "is_integrated", False))
    return {name: None if value is None else int(value) for name, value in found.items()}


def compiled() -> dict[str, int | None]:
    """Graphs that this rank compiled, and those that it found in the compile cache
    (vllm-project/vllm 0.32 compilation/counter.py); None where the release does not count them."""
    try:
        from vllm.compilation.counter import compilation_counter as counter
    except ImportError:
        return {}
    loaded = [getattr(counter, name) for name in _LOADED if hasattr(counter, name)]
    made = getattr(counter, "num_inductor_compiles", None)
    return {"graphs_compiled": made, "graphs_from_cache": sum(loaded) if loaded else None}


def _applied(estimate: int | None) -> int | None:
    """Bytes that the budget takes off for graphs: the estimate, or nothing where it is only printed."""
    import vllm.envs

    return estimate if getattr(vllm.envs, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", False) else 0


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Every tensor of nested lists and mappings."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)


def cache_of(core: Any, config: Any) -> dict[str, object]:
    """Blocks and groups as the engine's scheduler has them."""
    whole = core.scheduler.kv_cache_config
    groups = [
        {
            "kind": type(group.kv_cache_spec).__name__,
            "layers": len(group.layer_names),
            "block_size": group.kv_cache_spec.block_size,
            "page_bytes": group.kv_cache_spec.page_size_bytes,
            "window": window_of(group.kv_cache_spec),
        }
        for group in whole.kv_cache_groups
    ]
    return {"num_blocks": int(config.cache_config.num_gpu_blocks), "groups": groups}


def window_of(spec: Any) -> int:
    """Tokens that a group's layers see, of a window or a chunk; 0: all. A group of several sizes has its
    layers' own specs."""
    inner = getattr(spec, "kv_cache_specs", None)
    spec = next(iter(inner.values())) if inner else spec
    return int(getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None) or 0)
