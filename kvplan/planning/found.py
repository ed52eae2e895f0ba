"""The result of a search, the rejected candidates, and the total order of answers.

The total order: crossing nodes last, then the objective, then GPUs, cost, quality, power (where no price is
known, what the GPUs draw stands for what they cost), memory of the GPU (the smallest that does), nodes,
plainness of the layout, and the order in which GPUs and classes were given.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.budget.law import Capacity, Rejection
from kvplan.named import NamedTuple
from kvplan.planning.ask import CONTEXT, COST, FEWEST, REQUESTS, Ask, node_of
from kvplan.planning.space import Class
from kvplan.plans.fleet import Kind, Offer
from kvplan.units import apportion, ceil_div

MANY = 10**9
"""Requests that take nothing of a pool: as many as a plan may ask for."""
Key = tuple[Fraction | int | float, ...]


class Found(NamedTuple):
    """A candidate that does what is asked. key: its place in the total order. engines: pools, over all
    replicas. per_engine: requests that each must hold; capacity: what it does hold; block: the unit
    in which it shares prompts. million: price of a million answer tokens, where that is the objective and
    known."""

    key: Key
    one: Class
    offer: Offer
    max_model_len: int
    max_num_seqs: int
    replicas: int
    gpus: int
    capacity: int
    per_engine: int
    block: int = 0
    million: float | None = None

    @property
    def engines(self) -> int:
        return self.replicas * self.one.layout.pools

    @property
    def requests(self) -> int:
        """All requests that it holds."""
        return self.engines * self.capacity

    @property
    def under_way(self) -> int:
        """All requests that are dealt over it."""
        return self.engines * self.per_engine

    @property
    def cost(self) -> Fraction | None:
        price = self.offer.price_per_gpu_hour
        return None if price is None else price * self.gpus

    @property
    def nodes(self) -> int:
        return ceil_div(self.one.layout.gpus, node_of(self.offer))


class Rejected(NamedTuple):
    """Candidates of one class on one GPU (or any: None) that fall for one reason; candidates: how many."""

    one: Class
    offer: Offer | None
    why: Rejection
    candidates: int


class Searched(NamedTuple):
    """found: the best of each (GPU, weights, cache format), or of each kind of GPU, best first. considered:
    candidates judged or proved away; dominated: of those, left out by the bound on GPUs or cost. beyond:
    kinds that were not looked at to the end, as they come after all that are wanted."""

    found: tuple[Found, ...]
    rejected: tuple[Rejected, ...]
    considered: int
    dominated: int
    beyond: tuple[Kind, ...] = ()


def fitting(ask: Ask, room: Capacity) -> int:
    """Requests of the mix that a room holds, max_num_seqs aside, with the headroom kept free.

    n · mean share + excess + what all prompts begin with <= 1 − headroom − what is kept for reuse
    (`kvplan.engines.budget.sharing`), and one request of each shape fits.
    """
    if ask.plain(room):
        return room.runs(ask.shapes[0].tokens, ask.shapes[0].output_tokens)
    sharing = ask.sharing(room)
    free = ask.free(room) - sharing.common(room.share)
    total, weights, excess = Fraction(0), 0, Fraction(0)
    for shape in ask.shapes:
        part = sharing.request(shape.input_tokens, shape.output_tokens, room.takes, room.share)
        if part is None or part.share + part.excess > free:
            return 0
        total += part.share * shape.weight
        weights += shape.weight
        excess = max(excess, part.excess)
    return MANY if not total else min(MANY, max(1, int((free - excess) * weights / total)))


def dealt_fits(ask: Ask, room: Capacity, requests: int) -> bool:
    """Whether so many whole requests, dealt in the proportions of the mix, fit as well."""
    if ask.plain(room):
        return requests <= fitting(ask, room)
    sharing = ask.sharing(room)
    share, excess = sharing.common(room.share), Fraction(0)
    for shape, count in zip(ask.shapes, apportion(requests, [one.weight for one in ask.shapes]), strict=True):
        if not count:
            continue
        part = sharing.request(shape.input_tokens, shape.output_tokens, room.takes, room.share)
        if part is None:
            return False
        share += part.share * count
        excess = max(excess, part.excess)
    return share + excess <= ask.free(room)


def most_dealt(ask: Ask, room: Capacity, most: int) -> int:
    """The largest number of whole requests of the mix, up to ``most``, that fit."""
    while most and not dealt_fits(ask, room, most):
        most -= 1
    return most


def also_fits(ask: Ask, room: Capacity, pools: int) -> bool:
    """Whether one of so many pools holds what is asked of it beside the mix, each by itself."""
    return all(dealt_fits(ask.alone(one), room, ceil_div(one.requests, pools)) for one in ask.also)


_RANK = -4
"""The place of ``rank`` in a key."""
BEFORE_POWER = 7
"""Where a key comes to what the GPUs draw, under an objective of one figure."""


def key_again(objective: str, found: Found) -> Key:
    """The place of a candidate that was changed; what ranked it is as it was."""
    return key_of(objective, found, int(found.key[_RANK]))


def key_of(objective: str, found: Found, rank: int) -> Key:
    """The place in the total order: smaller is better."""
    one, offer = found.one, found.offer
    cost, price, million = found.cost, offer.price_per_gpu_hour, found.million
    first: Key = {
        FEWEST: (found.gpus,),
        COST: (int(million is None), (cost or 0) if million is None else million),
        REQUESTS: (-found.requests,),
        CONTEXT: (-found.max_model_len,),
    }[objective]
    memory, power = offer.gpu.memory_stated_bytes, offer.gpu.power_watts
    return (
        int(one.layout.tp > node_of(offer)),
        *first,
        found.gpus,
        int(price is None),
        0 if cost is None else cost,
        *one.quality_rank,
        int(power is None),
        0 if power is None else power * found.gpus,
        memory,
        found.nodes,
        int(one.layout.tp * one.layout.dp > node_of(offer)),
        *one.layout.plainness,
        rank,
        one.place,
        found.max_model_len,
        found.max_num_seqs,
    )
