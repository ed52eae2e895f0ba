"""A server as a plan says it, and what the surroundings of its start say of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvplan.engines.doors import Wish
from kvplan.engines.launch import Serve
from kvplan.errors import KvplanError
from kvplan.files.launch.machines import with_slice
from kvplan.later import regex
from kvplan.plans.plan import PLAN_FORMAT
from kvplan.record import record


@record()
class Launch:
    """One server. name: of the deployment. engine: with the release, where the image's tag says it. serve: as
    a plan has it. replicas: engines. gpu: the kind of GPU, where something says it. gpus: how many one
    engine is given, None where nothing says. slice: the profile of a MIG slice of that GPU. unread: what had
    no rule, as written. notes: what was understood in one of several ways.
    unnamed: why nothing says which model it is."""

    name: str
    engine: str
    model: str
    serve: Serve
    replicas: int = 1
    gpu: str | None = None
    gpus: int | None = None
    slice: str | None = None
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wish: Wish | None = None
    """Options of a program that starts the engine by itself: then serve follows from model and GPU."""
    unnamed: KvplanError | None = None
    devices: tuple[str, ...] = ()
    """MACHINE/NUMBER, as its text tells them apart; none where nothing says"""

    def shares_with(self, other: Launch) -> bool:
        """Whether both are on one GPU."""
        return not {*self.devices}.isdisjoint(other.devices)

    def document(self, gpu: str | None = None, gpus: int | None = None) -> dict[str, Any]:
        """The plan file's keys and values. gpu: instead of the server's own. gpus: of one engine, where none
        of its flags says how many.

        Raises KvplanError(no-gpu): neither says on which GPU; and what no model is named by."""
        if self.unnamed is not None:
            raise self.unnamed
        kind = gpu or self.gpu
        if kind is None:
            raise KvplanError(
                "no-gpu", f"nothing in {self.name} says which GPU it runs on", help="--gpu h100: its kind"
            )
        if self.slice is not None:
            kind = with_slice(kind, self.slice)
        head = {
            "kvplan": PLAN_FORMAT,
            "name": self.name,
            "model": self.model,
            "engine": self.engine,
            "gpu": kind,
        }
        counts = {"replicas": self.replicas} if self.replicas != 1 else {}
        if gpus is not None:
            counts["gpus"] = gpus * self.replicas
        return {**head, **counts, **({"serve": self.serve} if self.serve else {})}


MOST_GPUS = 64
"""Of one machine."""
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_DEVICE = r"(?:\d+(?::\d+)?|GPU-[\w-]+|MIG-[\w/-]+)"
_DEVICES = regex(rf"{_DEVICE}(?:,{_DEVICE})*", re.ASCII)
"""Numbers, ``0:1`` (a MIG slice), and the driver's names of GPUs and slices."""


def devices_seen(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES=0,1`` leaves; none where nothing says."""
    for name in _VISIBLE:
        if _DEVICES.fullmatch(environment.get(name, "")):
            return tuple(environment[name].split(","))
    return ()


def sees_all(environment: Mapping[str, str]) -> bool:
    """Whether nothing hides a GPU; False where a variable says so in words that are not known."""
    return all(environment.get(name, "all") == "all" for name in _VISIBLE)


def first_devices(count: int) -> tuple[str, ...]:
    """So many GPUs that nobody chose: an engine takes the first that it sees (vLLM's and SGLang's workers set
    cuda:RANK), and Docker shows the first (moby/moby daemon/nvidia_linux.go, countToDevices)."""
    return tuple(map(str, range(count)))
