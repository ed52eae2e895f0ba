"""Steps that are taken together: while requests only make answers, nothing but numbers changes.

A fast-forward ends with the step that makes somebody's last token; who has ended is settled here, and with
async scheduling the one step that is scheduled before that is known as well, so that the next may follow.
`Scheduler.schedule` is asked only where somebody may be admitted, blocks do not suffice, or a prompt is
computed. All of it gives what single steps give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.simulation.vllm.admission import NEVER

if TYPE_CHECKING:
    from kvplan.simulation.vllm.replica import Replica
    from kvplan.simulation.vllm.scheduler import Scheduler

_FEW = 4
"""Steps without a block given back that are worth taking together."""


def horizon(scheduler: Scheduler) -> int:
    """How many steps can be taken together: nobody is admitted or lacks a block before the end of the last,
    and nobody ends before it. Where blocks are given back in them (``freeing``) that is the most."""
    decode_only, pool = scheduler.decode_only, scheduler.memory.pool
    steps = decode_only.until_end() - (not scheduler.folds)
    blocked = scheduler.admission.stays_blocked() if scheduler.waiting else NEVER
    if blocked < steps:
        steps = blocked
    scheduler.freeing = False
    if steps < 1:
        return 0
    if decode_only.sliding:
        quiet = decode_only.quiet()
        if quiet < _FEW or pool.junction:
            scheduler.freeing = True
            return steps
        steps = min(steps, quiet)
    steps = decode_only.lasting(steps, pool.free)
    if pool.watched and blocked != NEVER and steps:
        steps = decode_only.lasting(steps, pool.spared(decode_only.needed(steps)))
    return steps


def step_freeing(scheduler: Scheduler, most: int, free: list[int]) -> int:
    """Take up to ``most`` steps one after another, for each gives blocks back: as long as those suffice
    and nobody is admitted. free: takes the free blocks after each. Returns how many were taken; where the
    waiting head is to be looked at, requests that only decode have had their turn in the next one as well."""
    decode_only, pool, admission = scheduler.decode_only, scheduler.memory.pool, scheduler.admission
    scheduler.memory.fresh.clear()
    decode_only.stepping = False
    budget, threshold = scheduler.engine.batch - decode_only.count, scheduler.threshold()
    looks = bool(budget and scheduler.waiting and len(scheduler.running) < scheduler.engine.sequences)
    for taken in range(most):
        needed = decode_only.needed(1)
        if needed > pool.free:
            return taken
        decode_only.serve(needed)
        decode_only.clock += 1
        decode_only.fresh = None
        if looks and not admission.still(scheduler.waiting.head(), budget, threshold):
            scheduler.stepped = True
            return taken
        free.append(pool.free)
    return most


def fast_forward(replica: Replica) -> bool:
    """Take all uniform steps up to the next arrival, or the first end, at once; whether there were any, so
    that more may follow."""
    scheduler, answer = replica.scheduler, replica.answer
    ahead = replica.engine.depth - 1  # how many steps lie between a step's scheduling and its start
    if ahead and (scheduler.last.parts or scheduler.last.late):
        return False
    steps = horizon(scheduler)
    if not steps:
        return False
    decode_only, pool = scheduler.decode_only, scheduler.memory.pool
    count, context, starts = decode_only.count, decode_only.context, max(replica.now, replica.free_at)
    first, more, most = replica.time.line(count, context)
    steps = min(steps, most)

    def ends(number: int) -> int:
        """When the ``number``-th of the steps ends; 0: when the first starts."""
        return starts + number * first + more * (number * (number + 1) // 2)

    at_ns = replica.next_ns()
    if steps > 1 and ends(steps - 1 - ahead) >= at_ns:
        low, high = 0, steps  # the last may still be scheduled before the arrival
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ends(middle - 1 - ahead) < at_ns else (low, middle)
        steps = max(1, low)
    free = pool.free
    left = [free]
    if scheduler.freeing:
        steps = step_freeing(scheduler, steps, left)
        if not steps:
            return False
    if answer.rows is not None:
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        for number in range(1, steps + 1):
            now_free = left[number] if scheduler.freeing else free - decode_only.needed(number)
            answer.rows.append((
                ends(number - 1), count, context + count * number, count, running, waiting, now_free, 0,
            ))  # fmt: skip
    if not scheduler.freeing:
        pool.take(decode_only.needed(steps))
        decode_only.clock += steps
    replica.fruitless = 0
    scheduler.gone = False
    answer.steps += steps
    answer.tokens += steps * count
    replica.free_at = ends(steps)
    answer.busy_ns += replica.free_at - starts
    if ahead:
        replica.now = ends(steps - 1)
        replica.queue[0].ends_ns = replica.free_at
    else:
        replica.now = replica.free_at
    scheduler.last.clock = decode_only.clock - scheduler.stepped
    if scheduler.stepped:
        return False
    if decode_only.ends[0][0] <= decode_only.clock:
        _settle(replica, ahead)
    return True


def _settle(replica: Replica, ahead: int) -> None:
    """The last step of a fast-forward made somebody's last token."""
    scheduler = replica.scheduler
    decode_only = scheduler.decode_only
    ended = decode_only.ended()
    if not ended:
        return
    if ahead and not _one_more(replica):
        scheduler.late(ended, scheduler.last, decode_only.clock - 1)
        return
    if ahead and scheduler.memory.caching:
        for request in ended:
            request.tokens = request.end
            scheduler.memory.store_looked(request, request.computed)
    replica.made(scheduler.settle(ended))


def _one_more(replica: Replica) -> bool:
    """Take the step that is scheduled before it is known who has ended; False where it is not uniform."""
    scheduler, answer = replica.scheduler, replica.answer
    decode_only, pool = scheduler.decode_only, scheduler.memory.pool
    if not decode_only.count or replica.next_ns() <= replica.now or horizon(scheduler) < 2:
        return False
    count, context = decode_only.count, decode_only.context
    needed = decode_only.needed(1)
    if needed > pool.free or scheduler.freeing:
        return False
    pool.take(needed)
    decode_only.clock += 1
    starts = replica.free_at
    first, more, _ = replica.time.line(count, context)
    if answer.rows is not None:
        answer.rows.append((
            starts, count, context + count, count, len(scheduler.running), len(scheduler.waiting),
            pool.free, 0,
        ))  # fmt: skip
    answer.steps += 1
    answer.tokens += count
    answer.busy_ns += first + more
    replica.now = starts
    replica.queue[0].ends_ns = replica.free_at = starts + first + more
    scheduler.last.clock = decode_only.clock
    return True
