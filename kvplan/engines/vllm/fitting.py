"""The largest burst that a pool runs: `kvplan.engines.vllm.needs` asked how much each needs."""

from __future__ import annotations

from bisect import bisect_right

from kvplan.engines.vllm.burst import MOST_WORK
from kvplan.engines.vllm.needs import Run

MOST_SEARCHED = 2 * MOST_WORK
"""Changes that the bursts tried may have together; a search that needs more ends at what it knows to fit."""


def fitting(run: Run, usable: int, limit: int) -> int:
    """The largest burst, of ``limit`` requests at most, that needs no more than ``usable`` blocks."""
    limit = min(limit, run.most)
    if run.only_grows:  # a request never holds less than when its prompt has just been computed
        limit = min(limit, usable // max(1, run.settled(0)))
    count = min(16, limit)
    while True:
        done = run.extend(count, usable)
        if done < count or count == limit or run.let_in[count - 1] > usable:
            break
        count = min(limit, count * 2)
    high = min(done, bisect_right(run.let_in, usable))
    # Were all at their full length at once, so many would run; that is seldom far off.
    low = min(high, usable // max(1, run.settled(max(run.last_age, 0))))
    run.searched = 0
    if low and _need(run, low) > usable:
        low, high = 0, low - 1
    step = 1
    while low < high and run.searched <= MOST_SEARCHED and _need(run, min(high, low + step)) <= usable:
        low, step = min(high, low + step), step * 2
    high = min(high, low + step - 1)
    while low < high and run.searched <= MOST_SEARCHED:
        middle = (low + high + 1) // 2
        if _need(run, middle) <= usable:
            low = middle
        else:
            high = middle - 1
    return low


def _need(run: Run, count: int) -> int:
    run.searched += count * (1 if run.only_grows else run.changes)
    return run.need(count)


def most_running(run: Run, usable: int, limit: int) -> int:
    """The largest burst of which all run, where requests may wait for their neighbours' prompts to settle.

    run: one in which nobody waits. Waiting changes who is how long when, so it is replayed for this very
    pool; a burst that would not fit if nobody waited, when all are at their longest, is not counted: it would
    fit one pool and not a larger one.
    """
    found = fitting(run, usable, limit)
    if found >= min(limit, run.reach) or not run.may_wait(found, usable):
        return found
    patient = Run(run.tables, run.steps, run.prompt, run.answer, usable, run.watermark, run.most)
    most = fitting(patient, usable, limit)
    most = min(most, run.extend(most))
    while most > found and run.together(most) > usable:
        run.searched += most * run.changes
        most = most - 1 if run.searched <= MOST_SEARCHED else found
    return max(found, most)
