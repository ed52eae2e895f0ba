"""The run of one rank: which stage follows which, what stands beside what, and whether there is room."""

from __future__ import annotations

import os

from kvplan.engines.tensors import Layout, Rank
from kvplan.errors import CannotRunHere
from kvplan.proof.validate import host, limit
from kvplan.proof.validate.devices import CudaDevice
from kvplan.proof.validate.fill import CHUNK_BYTES_ON_DEVICE
from kvplan.proof.validate.findings import WorkloadTest
from kvplan.proof.validate.found import workload_figures
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.ranks import World
from kvplan.proof.validate.stages import ballast, pool
from kvplan.proof.validate.stages.base import EXACT, Bench, Held, Progress, StageStopped
from kvplan.proof.validate.target import Target
from kvplan.proof.validate.workload_test import workload_test
from kvplan.record import record
from kvplan.units import GIB, MIB, human_bytes
from kvplan.weights.caching_allocator import reserved_for, why_unpredictable

SLACK = 300 * MIB
"""Host memory that a rehearsal may take beside its pool."""
WORKING = 4 * CHUNK_BYTES_ON_DEVICE
"""Device memory that writing, reading back and attention take beside the pool: two chunks, rows, a
workspace."""
REHEARSED_GROWTH = 128 * MIB
"""How far beyond its pool a rehearsal looks for a limit."""
ROUNDING = (1, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 33 * MIB)
"""Sizes whose blocks and segments show the allocator's rules."""


@record()
class Options:
    """How to run. device: ``cpu`` or ``cuda``; gpu: its number (None: this rank's). reserve: bytes to leave
    free. kernels: whether the engine's own kernels read the pages too. Everything else as on the command
    line."""

    device: str = "cuda"
    gpu: int | None = None
    reserve: int = GIB
    shared: bool = False
    find_limit: bool = False
    kernels: bool = True


def run_stages(
    bench: Bench,
    target: Target,
    rank: Rank,
    layout: Layout,
    hardware: Hardware,
    options: Options,
    world: World,
) -> None:
    """All stages, in step with the other ranks; what the cache in use shows is the bench's ``workload_test``.

    Raises StageStopped, KvplanError, OtherRankStopped, and what torch raises where memory runs out.
    """
    device = bench.device
    unpredictable = why_unpredictable(os.environ) if device.is_gpu else None
    reserved = device.is_gpu and unpredictable is None and hardware.kind == "cuda"
    if unpredictable is not None:
        bench.note(f"{unpredictable} changes torch's allocator: its segments are measured, not predicted")

    def prepare() -> ballast.Ballast:
        weights, why_not = ballast.try_ballast(target, rank)
        if why_not is not None:
            bench.note(why_not)
        elif device.is_gpu and not weights.bytes:
            bench.note("no weights lie beside the pool: the figures are of the cache alone")
        check_room(bench, layout, weights.bytes + weights.beside, options.reserve)
        return weights

    weights = world.in_step(prepare)
    world.reduce_on(device.name)
    with Held(device) as held:

        def serve() -> WorkloadTest:
            with bench.during("probe"):
                _probe_figures(bench, target, hardware, reserved=reserved)
            with bench.during("weights"):
                if weights.tensors:
                    ballast.hold(bench, held, weights, reserved=reserved)
                if weights.beside:
                    ballast.hold_beside(bench, held, weights)
            with bench.during("pool"):
                pool.measure(bench, layout, reserved=reserved)
            return _in_use(bench, layout)

        bench.workload_test = world.in_step(serve)
        if options.find_limit:
            with bench.during("limit"):
                limit.find(bench, target, rank, world, _ceiling(bench, target, options))
    bench.stage = "end"
    bench.figure("host_peak_bytes", None, host.peak_resident_bytes())


def _in_use(bench: Bench, layout: Layout) -> WorkloadTest:
    with bench.during("cache in use"):
        done = workload_test(layout, device=bench.device.name, progress=_told(bench), stop=bench.stopped)
        workload_figures(bench, done)
        bench.device.release()
        if done.stopped_at is not None:
            raise StageStopped(done.stopped_at)
    return done


def _told(bench: Bench) -> Progress:
    def told(stage: str, done: int, total: int) -> None:
        if not bench.stopped():  # the workload test asks for itself and says where it stopped
            bench.tick(done, total)

    return told


def _probe_figures(bench: Bench, target: Target, hardware: Hardware, *, reserved: bool) -> None:
    spec = target.spec
    if not isinstance(bench.device, CudaDevice):
        return
    bench.figure(
        "runtime_total_bytes", None if spec is None else spec.memory_total_bytes, hardware.runtime_total
    )
    # The budget's line of non-torch memory is no prediction: it is what grows while the engine profiles,
    # after its first reading, which has made the context already.
    bench.figure("context_bytes", None, hardware.context)
    if hardware.nvml_total is not None and hardware.runtime_total is not None:
        bench.figure("driver_reserved_bytes", None, hardware.nvml_total - hardware.runtime_total)
    import torch

    device = bench.device
    device.release()
    before, there = device.read().reserved or 0, device.segments()
    with Held(device) as held:
        for number, size in enumerate(ROUNDING):
            held.new(str(number), (size,), torch.uint8)
        grown = (device.read().reserved or 0) - before
    device.release()
    bench.figure(
        "rounding_reserved_bytes",
        reserved_for(ROUNDING, there) if reserved else None,
        grown,
        allowed_ppm=EXACT if reserved else None,
        independent=True,
    )


def check_room(bench: Bench, layout: Layout, weights: int, reserve: int) -> None:
    """Raises CannotRunHere(no-room) where the run would need what others use or what is to stay free."""
    free = bench.device.free_bytes()
    if free is None:
        bench.note("this system does not say how much memory is free: the pool is taken to fit")
        return
    beside = weights + WORKING if bench.device.is_gpu else SLACK
    room = free - reserve
    if layout.predicted_bytes + beside <= room:
        return
    largest = max(0, room - beside) // MIB
    raise CannotRunHere(
        "no-room",
        f"{human_bytes(layout.predicted_bytes + beside)} are needed;"
        f" {human_bytes(max(0, room))} may be taken",
        detail=(
            f"{human_bytes(free)} are free, {human_bytes(reserve)} of them stay free (--reserve)",
            f"pool {human_bytes(layout.predicted_bytes)}, beside it {human_bytes(beside)}",
        ),
        help=f"the largest pool that fits: --kv-cache-memory {largest}MiB" if largest else (),
    )


def _ceiling(bench: Bench, target: Target, options: Options) -> int:
    """The most that --find-limit asks for: free less the reserve; in a rehearsal a little beyond the pool."""
    free = bench.device.free_bytes()
    if not bench.device.is_gpu:
        bench.note("a rehearsal looks for its limit up to 128 MiB beyond its pool")
        most = target.pool_bytes + REHEARSED_GROWTH
        return most if free is None else min(most, max(target.pool_bytes, free - options.reserve - SLACK))
    assert free is not None
    return max(target.pool_bytes, free - options.reserve)
