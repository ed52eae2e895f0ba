"""How fast this device copies: figures that take the place of a datasheet's in an estimate of speed.

A copy on the device reads and writes every byte once; its figure counts both, as a datasheet's does. The
clock is the device's own where it has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kvplan.engines.tensors import Layout
from kvplan.errors import CannotRunHere
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.devices import nvml_entry
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.probe import refuse_others
from kvplan.proof.validate.stages.base import SPEED, Bench, Held
from kvplan.units import GIB, KIB, MIB

BUFFER = {True: GIB, False: 16 * MIB}
"""Bytes of a buffer on a GPU, and in a rehearsal."""
SMALLEST = 64 * KIB
REPEATS = {True: 10, False: 3}


def measure(bench: Bench, cache: Cache, layout: Layout, *, requests: int, room: int | None) -> None:
    """All of it beside the pool that is there. room: bytes that buffers may take, None = as they are."""
    import torch

    device = bench.device
    size = BUFFER[device.is_gpu]
    if room is not None:
        size = min(size, room // 3)
    if size < SMALLEST:
        bench.note("no room beside the pool for the buffers of the speed probes")
        return
    with Held(device) as held:
        size -= size % SMALLEST
        one, two = (held.new(name, (size // 8,), torch.int64) for name in ("one", "two"))
        one.fill_(1)
        copied = _speed(bench, lambda: two.copy_(one), 2 * size)
        bench.figure("copy_bytes_per_second", None, copied, unit=SPEED)
        _blocks(bench, held, cache, layout, one, requests)
        if device.is_gpu:
            _to_host(bench, two, size)
            measure_peer(bench, one, _speed)


def _blocks(bench: Bench, held: Held, cache: Cache, layout: Layout, buffer: Tensor, requests: int) -> None:
    """Gather the blocks of a batch of requests out of the pool, whole rows in the order of a shuffled block
    table, and write them back."""
    import torch

    rows = _rows(cache, layout)
    if rows is None:
        return
    there, row = int(rows.shape[0]), int(rows.shape[1]) * int(rows.element_size())
    of_one = max((group.blocks(layout.tokens, layout.encoder_tokens) for group in layout.groups), default=1)
    wanted = max(1, requests) * max(1, of_one)
    many = min(int(buffer.numel()) * 8 // row, there, wanted)
    if many < 1:
        return
    shuffled = torch.randperm(there, device="cpu")[:many].to(bench.device.name)
    target = buffer[: many * row // 8].view(rows.dtype).view(many, -1)
    moved = 2 * many * row
    gathered = _speed(bench, lambda: torch.index_select(rows, 0, shuffled, out=target), moved)
    bench.figure("gather_bytes_per_second", None, gathered, unit=SPEED)
    written = _speed(bench, lambda: rows.index_copy_(0, shuffled, target), moved)
    bench.figure("write_bytes_per_second", None, written, unit=SPEED)


def _rows(cache: Cache, layout: Layout) -> Tensor:
    """The first allocation as [blocks of one layer, words], None where a block is no whole words.

    Words of 16 bytes (which only complex numbers have) where they fit: what one thread moves at a time.
    """
    import torch

    view = next(iter(layout.views), None)
    if view is None:
        return None
    row = view.block_stride
    flat = cache.raw[view.allocation].reshape(-1).view(torch.uint8)
    many = int(flat.numel()) // row if row else 0
    if row % 8 or view.offset % 8 or not many:
        return None
    return flat[: many * row].view(torch.int64 if row % 16 else torch.complex128).view(many, -1)


def _to_host(bench: Bench, tensor: Tensor, size: int) -> None:
    """Pinned host memory, as a server's offloading uses it; at most a quarter of a GiB of it."""
    import torch

    part = tensor[: min(size, 256 * MIB) // 8]
    moved = int(part.numel()) * 8
    pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    to_device = _speed(bench, lambda: part.copy_(pinned, non_blocking=True), moved)
    bench.figure("host_to_device_bytes_per_second", None, to_device, unit=SPEED)
    to_host = _speed(bench, lambda: pinned.copy_(part, non_blocking=True), moved)
    bench.figure("device_to_host_bytes_per_second", None, to_host, unit=SPEED)


def _speed(bench: Bench, work: Callable[[], object], moved: int) -> int:
    """Bytes moved in a second: once to warm up, then the fastest of several runs."""
    bench.tick()
    work()
    fastest = min(_seconds(bench, work) for _ in range(REPEATS[bench.device.is_gpu]))
    return int(moved / fastest) if fastest > 0 else 0


def _seconds(bench: Bench, work: Callable[[], object]) -> float:
    if not bench.device.is_gpu:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


MOST = 256 * MIB
"""Bytes that are copied at a time."""

Speed = Callable[[Bench, Callable[[], object], int], int]


def measure_peer(bench: Bench, tensor: Tensor, speed: Speed) -> None:
    """Copies to the other GPU and back, in one piece: the most that a link gives to blocks that disaggregated
    prefill hands over. A note says whether torch has NVLink or PCIe peer access, or that there is no GPU to
    use."""
    import torch

    mine = int(str(bench.device.name).partition(":")[2] or 0)
    other = next((one for one in range(torch.cuda.device_count()) if one != mine), None)
    if other is None:
        return
    why_not = in_use(other)
    if why_not is not None:
        bench.note(f"no copy between GPUs was measured: {why_not}")
        return
    direct = torch.cuda.can_device_access_peer(mine, other)
    bench.note(f"GPU {mine} and {other}: {'peer access' if direct else 'copies go through host memory'}")
    part = tensor[: MOST // 8]
    moved = int(part.numel()) * 8
    away = torch.empty(part.shape, dtype=part.dtype, device=f"cuda:{other}")
    for name, target, source in (("to_peer", away, part), ("from_peer", part, away)):
        found = speed(bench, partial(target.copy_, source), moved)
        bench.figure(f"{name}_bytes_per_second", None, found, unit=SPEED)


def in_use(index: int) -> str | None:
    """Why another GPU is left alone: others run on it, or nobody can say. None: it is free."""
    entry = nvml_entry(index)
    if entry is None:
        return f"NVML does not say who is on GPU {index}"
    try:
        refuse_others(entry, shared=False)
    except CannotRunHere as error:
        return error.message
    return None
