"""The ranks of one run: torch.distributed under torchrun, or this process alone.

Words between ranks travel over gloo (host memory), so that the device's memory is not touched by them; on
GPUs one small NCCL reduction is made, because its buffers are part of what a server takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

from kvplan.errors import KvplanError

T = TypeVar("T")
_OF_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""A variable that torchrun alone sets (torch/distributed/elastic/agent/server/local_elastic_agent.py)."""
_PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the slowest: filling a large pool takes minutes."""


class OtherRankStopped(Exception):  # noqa: N818 - this rank did nothing wrong
    """Another rank ended the run; what it sends says why."""


class World:
    """rank, size, and the same on this machine (local). Closed on exit."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        if _OF_TORCHRUN not in environment:  # a job's own RANK and WORLD_SIZE (Slurm, Kubeflow) join nobody
            environment = {}
        self.rank = _number(environment, "RANK", 0)
        self.size = _number(environment, "WORLD_SIZE", 1)
        self.local_rank = _number(environment, "LOCAL_RANK", 0)
        self.local_size = _number(environment, "LOCAL_WORLD_SIZE", 1)
        self._joined = False

    @property
    def leads(self) -> bool:
        """Whether this rank writes the report."""
        return self.rank == 0

    def join(self, *, gpus: bool) -> None:
        """Meet the other ranks, where there are any."""
        if self.size == 1 or self._joined:
            return
        import torch.distributed as dist

        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=_PATIENCE)
        self._joined = True

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        if self._joined:
            import torch.distributed as dist

            self._joined = False
            dist.destroy_process_group()

    def everyone(self, value: T) -> list[T]:
        """The value of every rank, in their order, on every rank."""
        if not self._joined:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def in_step(self, work: Callable[[], T]) -> T:
        """The result of ``work``, where it ended well on every rank; so all ranks leave a stage the same way.

        Raises what was raised here, else OtherRankStopped where another rank raised.
        """
        raised: Exception | None = None
        result: T | None = None
        try:
            result = work()
        except Exception as error:
            raised = error
        if any(self.everyone(raised is not None)):
            raise raised if raised is not None else OtherRankStopped
        return cast(T, result)

    def reduce_on(self, device: str) -> None:
        """One small sum over NCCL: makes the communicator and its buffers."""
        if not self._joined or not device.startswith("cuda"):
            return
        import torch
        import torch.distributed as dist

        one = torch.ones(1, device=device)
        dist.all_reduce(one)
        if int(one.item()) != self.size:
            raise KvplanError("bad-collective", f"{self.size} ranks sum to {one.item()}")


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else default
