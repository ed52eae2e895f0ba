"""Shared by the stages: the place to run, the findings, and the signal to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvplan.plans.receipt import Figure
from kvplan.proof.tensor import Dtype, Tensor
from kvplan.proof.validate.devices import Device
from kvplan.proof.validate.findings import WorkloadTest

Progress = Callable[[str, int, int], None]
Stop = Callable[[], bool]

BYTES, COUNT = "bytes", "count"
EXACT = 0
"""A figure that may not differ by one."""
DEVICE_PPM = 5_000
"""Memory of the whole device may differ by 0.5 %: page tables and what the driver keeps are not modelled."""


class StageStopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """A stage was asked to stop between two pieces of work."""


class Bench:
    """One rank's run: its device, the figures so far, the stage that runs.

    shared: others may be on the device. workload_test: of the cache in use, once it is done.
    """

    def __init__(
        self, device: Device, *, rank: int = 0, progress: Progress | None = None, stop: Stop | None = None,
        shared: bool = False,
    ) -> None:  # fmt: skip
        self.device, self.rank, self.shared = device, rank, shared
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self.stage = "probe"
        self.workload_test: WorkloadTest | None = None
        self._progress, self._stop = progress, stop

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def figure(
        self,
        name: str,
        predicted: int | None,
        measured: int | None,
        *,
        unit: str = BYTES,
        allowed_ppm: int | None = None,
        independent: bool = False,
    ) -> None:
        """Keep one figure of the stage that runs. independent: not kvplan's own formula on both sides."""
        self.figures.append(
            Figure(name, unit, predicted, measured, allowed_ppm, self.stage, self.rank, independent)
        )

    def tick(self, done: int = 0, total: int = 0) -> None:
        """Between two pieces of work. Raises StageStopped."""
        if self._progress is not None:
            self._progress(self.stage, done, total)
        if self.stopped():
            raise StageStopped(self.stage)

    def stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop is not None and self._stop()

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Name the stage while it runs; an error leaves the name of the one that failed."""
        self.stage = stage
        self.tick()
        yield


class Held:
    """Tensors by name on one device, counted; all are dropped on exit."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._tensors: dict[str, Tensor] = {}

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._tensors):
            self.drop(name)

    def new(self, name: str, shape: tuple[int, ...], dtype: Dtype, *, device: str | None = None) -> Tensor:
        """An uninitialised tensor. ``device``: another than the bench's (``meta`` holds no memory)."""
        import torch

        tensor = torch.empty(shape, dtype=dtype, device=device or self.device.name)
        self._tensors[name] = tensor
        self.device.count(_bytes(tensor))
        return tensor

    def drop(self, name: str) -> None:
        self.device.count(-_bytes(self._tensors.pop(name)))


def first_line(error: BaseException) -> str:
    """The first line of an error, without its trace."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
