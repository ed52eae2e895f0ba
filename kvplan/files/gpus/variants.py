"""GPUs that no file lists because they are listed ones in another form: Macs by their memory, vGPUs, cards
whose memory was changed, cards under WSL."""

from __future__ import annotations

import re

from kvplan.errors import KvplanError
from kvplan.files.gpus.listed import find_slugs, load_listed, squeezed, with_memory
from kvplan.gpu import Gpu, under_wsl
from kvplan.later import regex
from kvplan.record import replace
from kvplan.units import GIB

_BESIDE = regex(r"[^a-z0-9+.]+", re.ASCII)
_COMPUTER = regex(
    r"(?:apple\s+)?(?:macbook\s*(?:pro|air)?|mac\s*(?:studio|mini|pro)|imac)[\s-]+", re.IGNORECASE
)
_MAC = regex(r"(?:apple)?(m\d(?:pro|max|ultra)?)(\d{1,4})gb", re.ASCII)
_VGPU = regex(
    r"(?:nvidia[- ])?(?:grid[- ])?([a-z]{1,4}\d{1,4}[a-z]{0,3})-(\d{1,3})[qc]", re.IGNORECASE | re.ASCII
)
"""Profiles of NVIDIA vGPU software: the board, GiB of frame buffer, and the series (L4-24Q, GRID A40-48C)."""
_CHANGED = regex(r"(.*?\S)[\s_-]*?(\d{1,3})\s*g(?:i?b)?", re.IGNORECASE | re.ASCII)
_UNDER_WSL = regex(r"(.*?\S)[\s_@-]*\(?wsl2?\)?", re.IGNORECASE | re.ASCII)
_LIMITED = regex(r"(.*?\S)[\s_@-]*(\d{1,3})\s*gib", re.IGNORECASE | re.ASCII)
"""GiB, as a limit is set; a machine sold with 96 GB is another one."""
_LEAST_MAC = 8
"""GB"""
_MOST = 4
"""Times its listed memory that a changed card may have."""


def variant_of(query: str) -> Gpu | None:
    """The GPU that a query means in another form than its file's; None where it means none."""
    for form in (_wsl, _mac, _vgpu, _limited, _changed):
        found = form(query.strip())
        if found is not None:
            return found
    return None


def _one(name: str) -> Gpu | None:
    slugs = find_slugs(name)
    return load_listed(slugs[0]) if len(slugs) == 1 else None


def _gigabytes(card: Gpu) -> int:
    """Memory that it is sold with; of a Mac's chip the most."""
    sold = re.match(r"\d+", card.memory_marketing)
    return int(sold[0]) if sold is not None else 0


def _wsl(query: str) -> Gpu | None:
    """A card on a Windows machine, in its Linux: ``rtx-4090-wsl``."""
    named = _UNDER_WSL.fullmatch(query)
    card = _one(named[1]) if named is not None else None
    if card is None:
        return None
    seen = under_wsl(card)
    return None if seen is card else seen


def _mac(query: str) -> Gpu | None:
    """A Mac by chip and memory, of which there are too many for a file each: ``m4-max-64gb``."""
    plain = _COMPUTER.sub("", query)
    named = _MAC.fullmatch(_BESIDE.sub("", plain.lower()))
    if named is not None and (chip := _one(named[1])) is not None and chip.vendor == "apple":
        most = _gigabytes(chip)
        if not _LEAST_MAC <= int(named[2]) <= most:
            raise KvplanError(
                "bad-size", f"{chip.name} is sold with {_LEAST_MAC} to {most} GB, not with {named[2]}",
                help=f"for example --gpu {chip.slug}; another machine can be given by a spec file",
            )  # fmt: skip
        return with_memory(chip, int(named[2]))
    return _one(plain) if plain != query else None


def _vgpu(query: str) -> Gpu | None:
    """A vGPU: its board's class with the profile's frame buffer, of which the manager keeps 64 MiB for each
    GiB and one more. Of that the budget makes an interval.

    Sources: mbilker/vgpu_unlock-rs issue 37 (A5000-4Q: 0xec000000 bytes and 0x14000000 reserved), issue 42
    (profiles of 2 and 13 GiB)."""
    profile = _VGPU.fullmatch(query)
    board = _one(profile[1]) if profile is not None else None
    if profile is None or board is None or board.vendor != "nvidia":
        return None
    if not 1 <= int(profile[2]) <= _gigabytes(board):
        return None
    slug = f"{profile[1]}-{profile[2]}q".lower()
    return replace(
        board, slug=slug, name=f"{board.name} vGPU of {profile[2]} GiB", memory_marketing=f"{profile[2]} GB",
        memory_total_bytes=None, memory_nvml_bytes=int(profile[2]) * GIB, memory_totals_seen=(),
        is_vgpu=True, note=f"a share of {board.slug}", aliases=(), nvml_names=(), default_for=(),
    )  # fmt: skip


def _limited(query: str) -> Gpu | None:
    """A GPU whose kernel was told how much of the memory it may use: ``strix-halo-128gb 96GiB``."""
    named = _LIMITED.fullmatch(query)
    card = _one(named[1]) if named is not None else None
    if named is None or card is None or card.memory_settable_bytes is None:
        return None
    amount = int(named[2]) * GIB
    if not 0 < amount <= card.memory_settable_bytes:
        return None
    return replace(
        card, slug=f"{card.slug}-limit-{named[2]}gib", name=f"{card.name} ({named[2]} GiB)", aliases=(),
        memory_total_bytes=amount, memory_settable_bytes=None, default_for=(), note="limit as given",
    )  # fmt: skip


def _changed(query: str) -> Gpu | None:
    """An NVIDIA card sold with another memory than NVIDIA's (2080 Ti 22GB, 4080 32GB): its class with that
    many GiB as what nvidia-smi shows."""
    named = _CHANGED.fullmatch(query)
    card = _one(named[1]) if named is not None else None
    if (
        named is None
        or card is None
        or card.vendor != "nvidia"
        or card.is_unified_memory
        or card.is_mig_slice
    ):
        return None
    listed, amount = _gigabytes(card), int(named[2])
    if not listed < amount <= _MOST * listed or not squeezed(named[1]):
        return None
    stem = card.slug.rpartition("-")[0]
    return replace(
        card, slug=f"{stem}-{amount}gb", memory_marketing=f"{amount} GB", memory_total_bytes=None,
        memory_nvml_bytes=amount * GIB, memory_totals_seen=(), aliases=(), default_for=(),
        note=f"A modified card; NVIDIA sells it with {listed} GB.",
    )  # fmt: skip
