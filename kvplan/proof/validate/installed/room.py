"""Is there room for an engine before it starts: on each GPU of the plan, in host memory, on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from kvplan.deployment.counts import ask
from kvplan.errors import CannotRunHere
from kvplan.proof.validate import host
from kvplan.proof.validate.devices import CPU
from kvplan.proof.validate.installed.shapes import KEPT_REQUESTS
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.stages.ballast import try_ballast
from kvplan.proof.validate.target import Target
from kvplan.record import replace
from kvplan.units import MIB, human_bytes

PROCESS = 640 * MIB
"""Host memory of one rank's process beside tensors, at least: vLLM 0.32's on a CPU took 638 MiB."""
DISK = 256 * MIB
"""Free bytes for the model's folder, the log and what an engine compiles, at least."""


def check_room(target: Target, gpus: Sequence[Hardware], folder: Path) -> None:
    """gpus: those of the plan in the order of its ranks, or the host.

    Per rank: its weights and its cache (of a library without a pool, of the requests that are run). What a
    system does not tell is taken to be there. Raises CannotRunHere(no-room).
    """
    ranks, rehearsed = target.ranks, gpus[0].kind == CPU
    weights = [try_ballast(target, rank)[0].bytes for rank in ranks]
    cache = _cache(target)
    for gpu, held in zip(gpus, weights):
        if not rehearsed and gpu.nvml_total is not None and gpu.used is not None:
            _need(f"on {gpu.name}", held + cache, gpu.nvml_total - gpu.used, held, cache)
    tensors = sum(weights) + len(ranks) * cache if rehearsed else 0
    of_host = "in host memory"
    _need(of_host, tensors + len(ranks) * PROCESS, host.free_bytes(), sum(weights) if rehearsed else 0, cache)
    _need(f"on the disk of {folder}", DISK, shutil.disk_usage(folder).free, 0, 0)


def _cache(target: Target) -> int:
    """Bytes of one rank's cache."""
    if target.result.pool is not None:
        return target.pool_bytes
    settings = replace(target.settings, requests=KEPT_REQUESTS, tokens=target.result.request.tokens)
    return ask(target.model, target.choice, settings).per_gpu.kv_bytes


def _need(where: str, needed: int, free: int | None, weights: int, cache: int) -> None:
    if free is None or needed <= free:
        return
    parts = [f"weights {human_bytes(weights)}"] if weights else []
    parts += [f"cache {human_bytes(cache)}"] if weights or cache else []
    raise CannotRunHere(
        "no-room",
        f"the engine would need {human_bytes(needed)} {where}, {human_bytes(max(0, free))} are free",
        detail=parts,
        help=("fewer layers: --layers 4", "a smaller cache: --kv-cache-memory") if weights else (),
    )
