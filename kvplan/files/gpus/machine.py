"""The GPUs of this machine without an extra: NVML where its package is there, else the drivers' own tools.

Asked in this order, until one answers: NVML (pynvml), ``nvidia-smi``, ``rocm-smi``, the files of the kernel
(``/sys/class/drm``), macOS's ``sysctl``. Nothing is guessed: a GPU whose memory no tool tells has
None.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from kvplan.errors import CannotRunHere
from kvplan.files.gpus.nvml import read_nvml
from kvplan.record import record
from kvplan.units import MIB

NVIDIA, AMD, APPLE = "nvidia", "amd", "apple"
DRM = Path("/sys/class/drm")
_SECONDS = 15
_FIELDS = ("name", "memory.total", "driver_version", "compute_cap", "mig.mode.current", "memory.used")
_OLD = 3
"""``compute_cap`` since driver 510: older ones are asked for the first fields alone."""
_SMI = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
"""The second: WSL, where its folder is on no path."""
_AMD_ID = "0x1002"


@record()
class SeenGpu:
    """One GPU. memory_bytes: as the tool shows it; None where it does not (unified memory). limit_bytes: what
    macOS was told to let it wire. by: the tool. is_divided: into MIG slices, of which the tool
    does not tell. used_bytes: what others hold of it now; None where nobody says."""

    name: str
    vendor: str
    memory_bytes: int | None
    by: str
    compute_capability: tuple[int, int] | None = None
    driver: str | None = None
    limit_bytes: int | None = None
    is_divided: bool = False
    used_bytes: int | None = None


def in_wsl() -> bool:
    """Whether this is Linux on Windows: its kernel says so."""
    return "microsoft" in platform.uname().release.lower()


class SilentError(Exception):
    """A tool that is not there, or tells of no GPU."""


def seen_gpus() -> tuple[SeenGpu, ...]:
    """The GPUs that the first tool with an answer tells of. Raises CannotRunHere(no-gpu), with what each tool
    said."""
    said = []
    for name, look in PROBES.items():
        try:
            found = look()
        except (SilentError, CannotRunHere) as silent:
            said.append(f"{name}: {silent}")
            continue
        if found:
            return tuple(found)
        said.append(f"{name}: no GPU")
    raise CannotRunHere(
        "no-gpu",
        "no GPU was found on this machine",
        detail=said,
        help=("name one: --gpu h100, or its memory: --gpu 80GiB", "pip install 'kvplan[gpu]' reads NVML"),
    )


def _by_nvml() -> list[SeenGpu]:
    found = read_nvml()
    return [
        SeenGpu(
            gpu.name,
            NVIDIA,
            gpu.memory_bytes,
            "NVML",
            gpu.compute_capability,
            found.driver,
            used_bytes=sum(one.used_bytes or 0 for one in gpu.processes),
        )
        for gpu in found.gpus
    ]


def _by_nvidia_smi() -> list[SeenGpu]:
    asked = [(tool, number) for tool in _SMI for number in (len(_FIELDS), _OLD)]
    for tool, number in asked:
        try:
            query = f"--query-gpu={','.join(_FIELDS[:number])}"
            text = said_by(tool, query, "--format=csv,noheader,nounits")
        except SilentError as silent:
            if (tool, number) == asked[1]:
                told = silent
            continue
        rows = (row for row in text.splitlines() if 2 <= row.count(",") < number)
        return [_of_row(row) for row in rows]
    raise told


def _of_row(row: str) -> SeenGpu:
    name, memory, driver, *rest = (cell.strip() for cell in row.split(","))
    capability = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", rest[0]) if rest else None
    return SeenGpu(
        name,
        NVIDIA,
        int(memory) * MIB if memory.isdigit() else None,
        "nvidia-smi",
        None if capability is None else (int(capability[1]), int(capability[2])),
        driver,
        is_divided=rest[1:2] == ["Enabled"],
        used_bytes=int(rest[2]) * MIB if rest[2:] and rest[2].isdigit() else None,
    )


def _by_rocm_smi() -> list[SeenGpu]:
    text = said_by("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")
    try:
        cards = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        raise SilentError("its answer is no JSON") from None
    found = []
    for card, entry in cards.items() if isinstance(cards, dict) else ():
        if not str(card).startswith("card") or not isinstance(entry, dict):
            continue
        told = {str(key).lower(): str(value) for key, value in entry.items()}
        memory = told.get("vram total memory (b)", "")
        names = [told[key] for key in ("card series", "card model", "card sku") if told.get(key)]
        name = next((one for one in names if not one.startswith("0x")), "AMD GPU")
        found.append(SeenGpu(name, AMD, int(memory) if memory.isdigit() else None, "rocm-smi"))
    return found


def _by_sysfs() -> list[SeenGpu]:
    found = []
    for device in sorted(DRM.glob("card[0-9]*/device")):
        memory = _content(device / "mem_info_vram_total")
        if _content(device / "vendor") == _AMD_ID and memory.isdigit():
            name = _content(device / "product_name") or "AMD GPU"
            found.append(SeenGpu(name, AMD, int(memory), str(DRM)))
    if not found:
        raise SilentError("no GPU of AMD's driver")
    return found


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _by_macos() -> list[SeenGpu]:
    if platform.system() != "Darwin":
        raise SilentError("this is no Mac")
    chip, memory = (
        said_by("sysctl", "-n", key).strip() for key in ("machdep.cpu.brand_string", "hw.memsize")
    )
    if not chip.startswith("Apple") or not memory.isdigit():
        raise SilentError(f"{chip or 'this processor'} is no Apple silicon")
    try:
        limit = said_by("sysctl", "-n", "iogpu.wired_limit_mb").strip()
    except SilentError:
        limit = ""
    wired = int(limit) * MIB if limit.isdigit() and int(limit) else None
    return [SeenGpu(chip, APPLE, int(memory), "sysctl", limit_bytes=wired)]


def said_by(tool: str, *arguments: str) -> str:
    """The output of a tool. Raises SilentError: it is not there, fails, or takes too long."""
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise SilentError("not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SilentError(f"does not answer ({type(error).__name__})") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        said = " ".join((done.stderr.decode("utf-8", "replace") or text).split())
        raise SilentError(f"failed: {said[:120]}" if said else f"failed with {done.returncode}")
    return text


PROBES: dict[str, Callable[[], list[SeenGpu]]] = {
    "NVML": _by_nvml,
    "nvidia-smi": _by_nvidia_smi,
    "rocm-smi": _by_rocm_smi,
    "/sys/class/drm": _by_sysfs,
    "sysctl": _by_macos,
}
"""Name → what asks it."""
