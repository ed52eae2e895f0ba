"""Rows of MLX's caches: how many tokens its arrays have room for, step by step.

ml-explore/mlx-lm 0.32.2 mlx_lm/models/cache.py (KVCache, QuantizedKVCache, RotatingKVCache, ChunkedKVCache
and their batches)
and generate.py (generate_step, BatchGenerator): of a prompt all but the last token are read in steps of
prefill_step_size, then tokens come one by one. A batch has the rows of its longest request for each.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.record import record
from kvplan.units import ceil_div, round_up

STEP = 256
"""KVCache.step."""


@record()
class Course:
    """A request: its prompt, all its tokens, and how many of the prompt are read in one step."""

    prompt: int
    tokens: int
    step: int

    @property
    def at_prompt(self) -> Course:
        """The same once its prompt has been read, but for the last token."""
        return Course(self.prompt, max(self.prompt - 1, 0), self.step)


@lru_cache(maxsize=4096)
def growing_rows(course: Course) -> int:
    """Rows of a KVCache. Where a step does not fit, the array is cut to what it holds and gets the step's own
    whole 256s (update_and_fetch): steps that are no multiple of 256 leave uneven rows."""
    read, step = max(course.prompt - 1, 0), course.step
    read = min(read, course.tokens)
    if step % STEP == 0:
        rows = round_up(read, STEP)
    else:
        rows = held = 0
        seen: dict[tuple[int, int], int] | None = {}
        while held < read:
            if seen is not None and held + step <= read:
                before = seen.setdefault((held % STEP, rows - held), held)
                if before < held:  # the steps since then come again and again
                    again = (read - held) // (held - before) * (held - before)
                    rows, held, seen = rows + again, held + again, None
                    continue
            added = min(step, read - held)
            if held + added > rows:
                rows = (held if held % STEP else rows) + round_up(added, STEP)
            held += added
    return rows + round_up(max(0, course.tokens - rows), STEP)


@lru_cache(maxsize=4096)
def rotating_rows(course: Course, size: int) -> int:
    """Rows of a RotatingKVCache of ``size``. A step of several tokens is appended to the newest size - 1
    (_update_concat); single tokens grow it by 256 at most up to size, and cut what is more
    (_update_in_place)."""
    read, step = min(max(course.prompt - 1, 0), course.tokens), course.step
    rows = held = 0
    if step > 1:
        whole, rest = divmod(read, step)
        for added in (*(step,) * min(whole, ceil_div(size, step) + 1), *(() if rest == 0 else (rest,))):
            rows, held = _added(rows, held, added, size)
    singles = course.tokens - (read if step > 1 else 0)
    held = read if step > 1 else 0
    if not singles:
        return rows
    if rows > size:
        return size
    if held + singles <= rows:
        return rows
    return min(size, rows + round_up(held + singles - rows, STEP))


@lru_cache(maxsize=4096)
def chunked_rows(course: Course, chunk: int) -> int:
    """Rows of a ChunkedKVCache: before every step it is cut to the newest ``chunk`` tokens
    (maybe_trim_front), then it grows as a KVCache does. chunk: a multiple of 256 in every published model."""
    read = min(max(course.prompt - 1, 0), course.tokens)
    rows = held = done = 0
    seen: dict[tuple[int, int], int] | None = {}
    while done < read:
        if seen is not None and done + course.step <= read:
            before = seen.setdefault((rows, held), done)
            if before < done:
                done, seen = done + (read - done) // (done - before) * (done - before), None
                continue
        added = min(course.step, read - done)
        rows, held = _in_chunk(rows, held, added, chunk)
        done += added
    singles = course.tokens - read
    if singles and held + singles - 1 > chunk:
        return chunk + STEP
    return rows + round_up(max(0, held + singles - rows), STEP)


def _in_chunk(rows: int, held: int, added: int, chunk: int) -> tuple[int, int]:
    """Rows and tokens of a chunk's cache after one step."""
    if held > chunk:
        rows = held = chunk
    if held + added > rows:
        rows = (held if held % STEP else rows) + round_up(added, STEP)
    return rows, held + added


def _added(rows: int, held: int, added: int, size: int) -> tuple[int, int]:
    """Rows and tokens after one step of a prompt."""
    if added > 1:
        return (min(rows, size - 1) if rows else 0) + added, held + added
    if held >= rows and rows < size:
        rows += min(STEP, size - held)
    return min(rows, size), held + 1
