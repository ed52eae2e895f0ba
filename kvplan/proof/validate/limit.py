"""``--find-limit``: grow the pool by bisection until memory runs out, and let go again after each step."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.engines.tensors import Rank
from kvplan.errors import KvplanError
from kvplan.proof.validate.devices import is_out_of_memory
from kvplan.proof.validate.memory import allocate
from kvplan.proof.validate.ranks import World
from kvplan.proof.validate.stages.base import COUNT, Bench
from kvplan.proof.validate.target import Target
from kvplan.record import record
from kvplan.units import MIB

STEP = 2 * MIB
"""The bisection ends here: the driver gives memory in pieces of this size."""


@record()
class Limit:
    """The largest pool that could be made, bytes; what stopped it: memory, or the ceiling that was kept."""

    pool_bytes: int
    by_memory: bool
    tries: int


def bisect_limit(works: Callable[[int], bool], low: int, ceiling: int, step: int = STEP) -> Limit:
    """The largest amount up to ``ceiling`` that works, to ``step``; ``low`` is known to work."""
    if ceiling <= low:
        return Limit(low, False, 0)
    tries = 1
    if works(ceiling):
        return Limit(ceiling, False, tries)
    high = ceiling
    while high - low > step:
        middle = (low + high) // 2
        tries += 1
        low, high = (middle, high) if works(middle) else (low, middle)
    return Limit(low, True, tries)


def fits_in_memory(bench: Bench, target: Target, rank: Rank, pool: int) -> bool:
    """Whether the pool's tensors can be made now. Everything is given back before the answer."""
    layout = target.with_pool(pool).layout(rank)
    try:
        with allocate(layout, bench.device.name):
            return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        bench.device.release()


def find(bench: Bench, target: Target, rank: Rank, world: World, ceiling: int) -> None:
    """The limit of the rank with the least, the requests that it holds, and the margin to the plan's pool.

    ceiling: bytes that a pool may take at most. All ranks step together: one that cannot follow decides.
    """

    def works(pool: int) -> bool:
        def here() -> bool:
            bench.tick(pool, ceiling)
            return fits_in_memory(bench, target, rank, pool)

        return all(world.everyone(world.in_step(here)))

    low = target.pool_bytes
    ceiling = min(world.everyone(ceiling))
    found = bisect_limit(works, low, ceiling)
    bench.figure("limit_pool_bytes", None, found.pool_bytes)
    bench.figure("out_of_memory_margin_bytes", None, found.pool_bytes - low)
    try:
        larger = target.with_pool(found.pool_bytes)
        requests = larger.at_once(larger.layout(rank).requests)
    except KvplanError:
        requests = 0
    bench.figure("limit_requests", None, requests, unit=COUNT)
    if not found.by_memory:
        bench.note("the limit is what --reserve and others leave: memory did not run out")
