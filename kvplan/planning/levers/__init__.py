"""Changes that would make it fit, and their price: each lever with its effect on this very plan."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.planning.levers.asked import decode_context_parallel, kv_formats, retention, windows
from kvplan.planning.levers.preemption import preemption
from kvplan.planning.levers.results import Effect, Lever
from kvplan.planning.levers.sharing import contiguous, prefix_sharing
from kvplan.planning.levers.situation import Link, Seconds, Situation
from kvplan.planning.levers.tiers import PrefillTime, disaggregated, offload

__all__ = ["Effect", "Lever", "Link", "PrefillTime", "Seconds", "Situation", "levers"]


def _unknown(tokens: int) -> Seconds | None:
    return None


def levers(
    seen: Situation,
    *,
    tiers: Sequence[tuple[Link, int]] = (),
    transfers: Sequence[Link] = (),
    prefill: PrefillTime = _unknown,
    formats: Sequence[str] | None = None,
    simulated: bool = True,
) -> tuple[Lever, ...]:
    """Every lever, in a fixed order; those that do nothing here say why.

    tiers: a link and the bytes behind it (0: not stated) for each tier of the cache. transfers: links between
    a prefill and a decode engine. prefill: how long a prompt takes to compute. formats: the KV formats
    that the plan's quality allows; None: all. simulated: also what only a simulation of the load says.
    """
    stored = tuple(offload(seen, link, size, prefill) for link, size in tiers)
    return (
        prefix_sharing(seen),
        kv_formats(seen, formats),
        windows(seen),
        retention(seen),
        decode_context_parallel(seen),
        *(stored or (offload(seen, None, 0, prefill),)),
        disaggregated(seen, transfers, prefill),
        *((preemption(seen),) if simulated else ()),
        contiguous(seen),
    )
