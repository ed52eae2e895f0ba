"""The workspace that torch gives cuBLAS, one for each handle and stream that multiplies.

pytorch/pytorch aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize: ``:4096:2:16:8`` KiB, and
32 MiB on Hopper and Blackwell (compute capability 9.x, 10.x, since torch 2.12 also 12.x).
"""

from __future__ import annotations

from kvplan.units import KIB, MIB

WIDE = (9, 10, 12)
"""Major compute capabilities of the large one."""
_LARGE, _SMALL = 32 * MIB, (2 * 4096 + 8 * 16) * KIB
_IN_A_RUN = 2
"""Workspaces that a profile run makes: as many as those starts say, one for each stream that multiplies."""
_CONSUMER, _SINCE = 12, (0, 27)
"""Which capability has the large one since which release of vLLM, the first with such a torch."""


def workspace(capability: tuple[int, int] | None) -> int:
    """Bytes of one; without a capability (another vendor's) as on Hopper."""
    return _LARGE if capability is None or capability[0] in WIDE else _SMALL


def spared(capability: tuple[int, int] | None, release: tuple[int, ...]) -> int:
    """Bytes that a profile run has less than on the H100 boards that the pass was measured on.

    An H100 has 79 MiB beside its traced pass. 36 starts of dense text models on GPUs of 7.5 and 8.x that
    compiled nothing kept 0.05 GiB less than that in the middle; with two smaller workspaces, nothing less.
    """
    small = capability is not None and capability[0] == _CONSUMER and release < _SINCE
    return _IN_A_RUN * (_LARGE - (_SMALL if small else workspace(capability)))
