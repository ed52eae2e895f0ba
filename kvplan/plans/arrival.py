"""A request of a trace, as files/traces reads it and a simulation serves it."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.record import record


@record(eq=False)
class Arrival:
    """One request of a trace. at_ns: when it arrives; prompt, answer: its tokens; ids: identities of its
    blocks of the trace's width, over the prompt and, where known, the answer; priority: smaller is served
    first."""

    at_ns: int
    prompt: int
    answer: int
    ids: Sequence[int] = ()
    priority: int = 0
