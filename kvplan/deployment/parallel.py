"""How one server divides its GPUs: GPUs of a replica, and the pools in it that have requests of their own."""

from __future__ import annotations

from kvplan.settings import Settings, further_ranks


def gpus_per_replica(settings: Settings) -> int:
    """GPUs of one server: tensor × pipeline × data × prefill context parallel size; SGLang's attention groups
    lie inside tensor parallelism."""
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size * further_ranks(settings)
    return ranks if _has(settings, "enable_dp_attention") else ranks * settings.data_parallel_size


def pools_per_replica(settings: Settings) -> int:
    """Pools with requests of their own: one a data-parallel rank; one an attention group (SGLang's
    ``attn_dp_size``, or ``enable_dp_attention`` with dp_size); one a GPU of a stage where attention itself is
    data-parallel (TensorRT-LLM's ``enable_attention_dp``)."""
    groups = settings.own.get("attn_dp_size")
    ways = settings.data_parallel_size * (groups if isinstance(groups, int) else 1)
    return ways * settings.tensor_parallel_size if _has(settings, "enable_attention_dp") else ways


def attention_ranks(settings: Settings) -> int:
    """Tensor ranks that attend to the same requests: all, or one group of data-parallel attention."""
    inside = pools_per_replica(settings)
    if not _has(settings, "enable_dp_attention"):
        inside //= max(1, settings.data_parallel_size)
    return max(1, settings.tensor_parallel_size // max(1, inside))


def _has(settings: Settings, option: str) -> bool:
    return settings.own.get(option) is True
