"""How much memory this machine and this process have, without another package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvplan.units import KIB

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_LIMITS = (
    # (what a control group may take, what it has taken): version 2, version 1.
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def free_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """Bytes that may be taken without pushing anything out; None where the system does not say.

    Linux: MemAvailable, and no more than what the control group has left. macOS: free pages; Windows:
    GlobalMemoryStatusEx.
    """
    found = _named(meminfo, "MemAvailable")
    if found is None:
        return _windows() if sys.platform == "win32" else _pages()
    left = [found]
    for limit, taken in _LIMITS:
        most, now = _number(limit), _number(taken)
        if most is not None and now is not None:
            left.append(max(0, most - now))
    return min(left)


def total_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """Bytes of the machine's memory, None where the system does not say."""
    return _named(meminfo, "MemTotal")


def resident_bytes(status: Path = _STATUS) -> int | None:
    """Bytes of this process in memory now."""
    found = _named(status, "VmRSS")
    return _peak() if found is None else found


def peak_resident_bytes(status: Path = _STATUS) -> int | None:
    """The most bytes that this process has had in memory."""
    found = _named(status, "VmHWM")
    return _peak() if found is None else found


def _named(path: Path, name: str) -> int | None:
    """``MemAvailable:   22911540 kB`` in bytes."""
    try:
        rows = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for row in rows:
        key, _, rest = row.partition(":")
        words = rest.split()
        if key == name and words and words[0].isdigit():
            return int(words[0]) * KIB
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _pages() -> int | None:
    names = getattr(os, "sysconf_names", {})
    for pages in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if pages in names and "SC_PAGE_SIZE" in names:
            found = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
            # Where only the whole is known, half of it is taken to be free.
            return found if pages == "SC_AVPHYS_PAGES" else found // 2
    return None


def _peak() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else int(most) * KIB


def _windows() -> int | None:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *[(name, ctypes.c_ulonglong) for name in ("total", "available", "a", "b", "c", "d", "e")],
        ]

    status = Status(length=ctypes.sizeof(Status))
    windll = getattr(ctypes, "windll", None)
    if windll is None or not windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.available)
