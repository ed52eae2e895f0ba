"""The GPUs of this machine, as NVML (the library under nvidia-smi) tells. The only file that loads pynvml."""

from __future__ import annotations

from typing import Any

from kvplan.errors import CannotRunHere
from kvplan.record import record


@record()
class Process:
    """A process that holds memory of a device. used_bytes: None where not told (containers)."""

    pid: int
    used_bytes: int | None


@record()
class NvmlGpu:
    """One device. memory_bytes: NVML's total, a little more than what the CUDA runtime reports.

    used_bytes: by everyone, now. ecc, mig, persistence: whether each is switched on. What the driver does not
    say is None, or no process.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    used_bytes: int | None = None
    processes: tuple[Process, ...] = ()
    uuid: str | None = None
    pci_bus_id: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None


@record()
class Nvml:
    driver: str
    gpus: tuple[NvmlGpu, ...]


def read_nvml() -> Nvml:
    """Driver and devices. Raises CannotRunHere: missing-extra (pynvml), no-driver (no NVIDIA driver)."""
    try:
        import pynvml
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "reading GPUs needs the package nvidia-ml-py, which is not installed",
            help="pip install 'kvplan[gpu]'",
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-driver", f"no NVIDIA driver answers: {error}") from error
    try:
        return Nvml(_text(pynvml.nvmlSystemGetDriverVersion()), tuple(_gpus(pynvml)))
    except pynvml.NVMLError as error:
        raise CannotRunHere("no-driver", f"the NVIDIA driver does not answer: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _gpus(pynvml: Any) -> list[NvmlGpu]:
    return [
        _gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(pynvml.nvmlDeviceGetCount())
    ]


def _gpu(pynvml: Any, handle: Any) -> NvmlGpu:
    def told(name: str) -> Any:
        """The result of a call, None where the driver (or its Python package) does not know it."""
        try:
            return getattr(pynvml, name)(handle)
        except (pynvml.NVMLError, AttributeError):
            return None

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    capability = tuple(told("nvmlDeviceGetCudaComputeCapability") or ())
    used = getattr(memory, "used", None)
    uuid, bus = told("nvmlDeviceGetUUID"), getattr(told("nvmlDeviceGetPciInfo"), "busId", None)
    return NvmlGpu(
        _text(pynvml.nvmlDeviceGetName(handle)),
        int(memory.total),
        (int(capability[0]), int(capability[1])) if len(capability) == 2 else None,
        None if used is None else int(used),
        _processes([*(told(name) or () for name in _PROCESS_CALLS)]),
        None if uuid is None else _text(uuid),
        None if bus is None else _text(bus),
        _mode(told("nvmlDeviceGetEccMode")),
        _mode(told("nvmlDeviceGetMigMode")),
        _mode(told("nvmlDeviceGetPersistenceMode")),
    )


_PROCESS_CALLS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


def _processes(lists: list[Any]) -> tuple[Process, ...]:
    found: dict[int, Process] = {}
    for one in (entry for entries in lists for entry in entries):
        used = getattr(one, "usedGpuMemory", None)
        found[int(one.pid)] = Process(int(one.pid), None if used is None else int(used))
    return tuple(found[pid] for pid in sorted(found))


def _mode(value: object) -> bool | None:
    """A switch, or the pair (now, after the next start)."""
    if value is None:
        return None
    return bool(value[0] if isinstance(value, (list, tuple)) else value)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
