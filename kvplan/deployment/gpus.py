"""The fewest GPUs of a kind that hold a load: more replicas, or wider tensor parallelism."""

from __future__ import annotations

from typing import Any

from kvplan.deployment.counts import fits_pool, max_requests
from kvplan.deployment.resolve import Deployment
from kvplan.engines.base import LIKELY, SAFE
from kvplan.errors import KvplanError
from kvplan.record import replace
from kvplan.settings import gpus_per_replica, pools_per_replica
from kvplan.units import ceil_div

WIDTHS = (1, 2, 4, 8, 16)
"""Tensor-parallel sizes worth trying."""
MOST_REPLICAS = 4096


def fewest_gpus(
    deployment: Deployment, *, safe: bool = False, narrower: bool = False, more_sequences: bool = False
) -> Deployment | None:
    """The deployment on the fewest GPUs that hold its load, of equal ones that with the smallest servers.

    safe: in the safe pool. narrower: servers of fewer tensor-parallel ranks than it has count too.
    more_sequences: max_num_seqs is raised to each server's share of the load. None where no number of GPUs
    does.
    """
    own = deployment.settings.tensor_parallel_size
    found = []
    for width in dict.fromkeys((own, *WIDTHS)):
        if width >= own or narrower:
            one = _with_enough(deployment, safe, width, more_sequences)
            found += [] if one is None else [one]
    return min(found, key=lambda one: (one.gpus, one.settings.tensor_parallel_size), default=None)


def _with_enough(deployment: Deployment, safe: bool, width: int, more_sequences: bool) -> Deployment | None:
    """The deployment with as many replicas as hold the load; None where no number does."""
    choice = replace(deployment.choice, pool=SAFE if safe else LIKELY, advice=False)
    changes: dict[str, Any] = {"tensor_parallel_size": width}
    if more_sequences:
        changes["max_num_seqs"] = deployment.settings.requests
    one = redealt(replace(deployment, choice=choice), 0, **changes)
    try:
        each = max_requests(one.model, choice, replace(one.settings, requests=1)) * one.pools
    except KvplanError:
        return None
    replicas = ceil_div(deployment.requests, each) if each else MOST_REPLICAS + 1
    if replicas > MOST_REPLICAS:
        return None
    dealt = redealt(one, replicas * one.gpus)
    if more_sequences:
        share = dealt.settings.requests * one.pools  # a server's pools share what it is told
        own = deployment.settings.max_num_seqs or 0
        dealt = redealt(dealt, dealt.gpus, max_num_seqs=max(own, share))
    return replace(dealt, choice=deployment.choice) if fits_pool(one.model, choice, dealt.settings) else None


def redealt(deployment: Deployment, gpus: int, **changes: Any) -> Deployment:
    """The deployment with other settings, on the whole replicas that so many GPUs make up: one at least."""
    settings = replace(deployment.settings, **changes)
    each = gpus_per_replica(settings)
    replicas = max(gpus // each, 1)
    pools = replicas * pools_per_replica(settings)
    settings = replace(settings, requests=ceil_div(deployment.requests, pools))
    return replace(
        deployment, settings=settings, gpus=replicas * each, replicas=replicas, pools=pools, idle_gpus=0
    )
