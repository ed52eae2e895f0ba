"""The cache's own tensors: bytes, segments and the device's memory, against the engine's rules."""

from __future__ import annotations

from kvplan.engines.tensors import Layout
from kvplan.proof.validate.devices import Meters
from kvplan.proof.validate.memory import allocate
from kvplan.proof.validate.stages.base import DEVICE_PPM, EXACT, Bench
from kvplan.units import human_bytes
from kvplan.weights.caching_allocator import reserved_for


def measure(bench: Bench, layout: Layout, *, reserved: bool) -> None:
    """Allocate, compare, let go. Raises what torch raises where memory runs out.

    reserved: whether the allocator's rules are known, so that its segments are predicted to the byte.
    """
    device = bench.device
    device.release()
    before, there = device.read(), device.segments()
    with allocate(layout, device.name) as cache:
        made = cache.bytes
        device.count(made)
        try:
            after = device.read()
        finally:
            device.count(-made)
    device.release()
    bench.figure("pool_bytes", layout.predicted_bytes, made, allowed_ppm=EXACT)
    sizes = [allocation.bytes for allocation in layout.allocations]
    _on_device(bench, layout, before, after, reserved_for(sizes, there) if reserved else None)


def _on_device(bench: Bench, layout: Layout, before: Meters, after: Meters, segments: int | None) -> None:
    bench.figure(
        "pool_allocated_bytes", layout.predicted_bytes, after.requested - before.requested, allowed_ppm=EXACT
    )
    if after.reserved is None or before.reserved is None:
        return
    grown = after.reserved - before.reserved
    # Segments beyond what was asked for: the rests that no tensor of the pool can use.
    bench.figure("pool_fragmentation_bytes", None, grown - (after.requested - before.requested))
    exact = EXACT if segments is not None else None
    bench.figure("pool_reserved_bytes", segments, grown, allowed_ppm=exact, independent=True)
    taken = layout.predicted_bytes if segments is None else segments
    grown, allowed = _neighbours(bench, before, after)
    for name, old, new in (("runtime", before.device, after.device), ("nvml", before.nvml, after.nvml)):
        if old is not None and new is not None:
            # What was used before is part of the prediction: the share allowed is of the whole device.
            predicted = old + taken
            bench.figure(
                f"device_{name}_bytes", predicted, new - grown, allowed_ppm=allowed, independent=True
            )


def _neighbours(bench: Bench, before: Meters, after: Meters) -> tuple[int, int | None]:
    """(Bytes that other processes took while the pool was made, what the device's figures are allowed). Where
    the driver does not say whose memory is whose, a shared GPU's figures decide nothing."""
    if before.others is None or after.others is None:
        if not bench.shared:
            return 0, DEVICE_PPM
        bench.note(
            "--shared: the driver does not say whose memory is whose, the device's figures are reported"
        )
        return 0, None
    grown = after.others - before.others
    if grown:
        how = "took" if grown > 0 else "gave back"
        bench.note(f"other processes {how} {human_bytes(abs(grown))} while the pool was made: left out here")
    return grown, DEVICE_PPM
