"""How an engine divides a model's weights over its ranks: as its budget does."""

from __future__ import annotations

from kvplan.engines.base import Choice
from kvplan.engines.options import resolve
from kvplan.engines.own_options import SGLANG, TRTLLM
from kvplan.model import Model
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.weights.ranks import Parallel


def parallel_for(model: Model, choice: Choice, settings: Settings, started: SizeResult) -> Parallel:
    """started: the engine's answer for these settings. Raises RefusedError(no-weights) for a class whose
    division is not described, KvplanError(bad-setting)."""
    name, given = choice.engine.name, dict(settings.engine_options)
    if settings.weights is None and name == "sglang":
        from kvplan.engines.sglang.arguments import resolve_arguments
        from kvplan.engines.sglang.groups import parallel_of as sglang_parallel

        options = resolve(SGLANG, given, name)
        arguments = resolve_arguments(model, settings, options, int(started.settings["context_len"]))
        return sglang_parallel(model, arguments, settings, options)
    if settings.weights is None and name == "trtllm":
        from kvplan.engines.trtllm.groups import parallel_of as trtllm_parallel

        return trtllm_parallel(model, settings, resolve(TRTLLM, given, name))
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=settings.data_parallel_size if name == "vllm" else 1,
        enable_expert_parallel=settings.enable_expert_parallel,
        compute_capability=None if gpu is None else gpu.compute_capability,
    )
