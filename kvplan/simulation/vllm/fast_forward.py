"""Steps that are taken together: while requests only make answers, nothing but numbers changes.

A leap ends with the step that makes somebody's last token; who has ended is settled here, and with async
scheduling the one step that is scheduled before that is known as well, so that the next leap may follow.
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
    and nobody ends before it. Where blocks are given back in them (``gliding``) that is the most."""
    steady, pool = scheduler.steady, scheduler.memory.pool
    steps = steady.until_end() - (not scheduler.folds)
    blocked = scheduler.admission.stays_blocked() if scheduler.waiting else NEVER
    if blocked < steps:
        steps = blocked
    scheduler.gliding = False
    if steps < 1:
        return 0
    if steady.sliding:
        quiet = steady.quiet()
        if quiet < _FEW or pool.junction:
            scheduler.gliding = True
            return steps
        steps = min(steps, quiet)
    steps = steady.lasting(steps, pool.free)
    if pool.watched and blocked != NEVER and steps:
        steps = steady.lasting(steps, pool.spared(steady.needed(steps)))
    return steps


def glide(scheduler: Scheduler, most: int, free: list[int]) -> int:
    """Take up to ``most`` steps one after another, for each gives blocks back: as long as those suffice
    and nobody is admitted. free: takes the free blocks after each. Returns how many were taken; where the
    waiting head is to be looked at, steady requests have had their turn in the next one as well."""
    steady, pool, admission = scheduler.steady, scheduler.memory.pool, scheduler.admission
    scheduler.memory.fresh.clear()
    steady.stepping = False
    budget, threshold = scheduler.engine.batch - steady.count, scheduler.threshold()
    looks = bool(budget and scheduler.waiting and len(scheduler.running) < scheduler.engine.sequences)
    for taken in range(most):
        needed = steady.needed(1)
        if needed > pool.free:
            return taken
        steady.serve(needed)
        steady.clock += 1
        steady.fresh = None
        if looks and not admission.still(scheduler.waiting.head(), budget, threshold):
            scheduler.stepped = True
            return taken
        free.append(pool.free)
    return most


def leap(replica: Replica) -> bool:
    """Take all uniform steps up to the next arrival, or the first end, at once; whether there were any, so
    that more may follow."""
    scheduler, answer = replica.scheduler, replica.answer
    ahead = replica.engine.depth - 1  # how many steps lie between a step's scheduling and its start
    if ahead and (scheduler.last.parts or scheduler.last.late):
        return False
    steps = horizon(scheduler)
    if not steps:
        return False
    steady, pool = scheduler.steady, scheduler.memory.pool
    count, context, starts = steady.count, steady.context, max(replica.now, replica.free_at)
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
    if scheduler.gliding:
        steps = glide(scheduler, steps, left)
        if not steps:
            return False
    if answer.rows is not None:
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        for number in range(1, steps + 1):
            now_free = left[number] if scheduler.gliding else free - steady.needed(number)
            answer.rows.append((
                ends(number - 1), count, context + count * number, count, running, waiting, now_free, 0,
            ))  # fmt: skip
    if not scheduler.gliding:
        pool.take(steady.needed(steps))
        steady.clock += steps
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
    scheduler.last.clock = steady.clock - scheduler.stepped
    if scheduler.stepped:
        return False
    if steady.ends[0][0] <= steady.clock:
        _settle(replica, ahead)
    return True


def _settle(replica: Replica, ahead: int) -> None:
    """The last step of a leap made somebody's last token."""
    scheduler = replica.scheduler
    steady = scheduler.steady
    ended = steady.ended()
    if not ended:
        return
    if ahead and not _one_more(replica):
        scheduler.late(ended, scheduler.last, steady.clock - 1)
        return
    if ahead and scheduler.memory.caching:
        for request in ended:
            request.tokens = request.end
            scheduler.memory.store_looked(request, request.computed)
    replica.made(scheduler.settle(ended))


def _one_more(replica: Replica) -> bool:
    """Take the step that is scheduled before it is known who has ended; False where it is not uniform."""
    scheduler, answer = replica.scheduler, replica.answer
    steady, pool = scheduler.steady, scheduler.memory.pool
    if not steady.count or replica.next_ns() <= replica.now or horizon(scheduler) < 2:
        return False
    count, context = steady.count, steady.context
    needed = steady.needed(1)
    if needed > pool.free or scheduler.gliding:
        return False
    pool.take(needed)
    steady.clock += 1
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
    scheduler.last.clock = steady.clock
    return True
