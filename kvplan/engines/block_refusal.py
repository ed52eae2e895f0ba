"""The refusal of ranks that would divide a block of weights that share a scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.architectures import weights as stored
    from kvplan.weights import shares
    from kvplan.weights.ranks import Parallel
else:
    stored = later("kvplan.architectures", "weights")
    shares = later("kvplan.weights", "shares")


def block_refusal(
    model: Model,
    settings: Layout,
    tp: int,
    divided: Callable[[int], Parallel],
    stops: Callable[[shares.Cut, str], bool],
    whole_experts: str,
) -> Refusal | None:
    """The first cut that stops the engine, or None.

    divided: how the weights lie over so many tensor-parallel ranks. stops: whether the engine stops at a cut
    of weights of that method. whole_experts: the option that leaves experts whole, "" where it is set.
    """
    try:
        inventory = stored.served_sources(model, settings.quantization).inventory
        if inventory is None or not inventory.quantisation:
            return None
        method = inventory.quantisation

        def first(ranks: int) -> shares.Cut | None:
            return next((cut for cut in shares.cuts(inventory, divided(ranks)) if stops(cut, method)), None)

        cut = first(tp)
        if cut is None:
            return None
        smaller = next((ranks for ranks in range(tp - 1, 0, -1) if tp % ranks == 0 and not first(ranks)), 0)
    except KvplanError:  # weights that are not known, or not divided at all, are said elsewhere
        return None
    ways = (f"--tp {smaller}" if smaller else "", whole_experts if cut.is_expert else "")
    return Refusal("tensor-parallel", cut.words, help=tuple(way for way in ways if way))
