"""Plans on one cluster: the GPUs that they take by kind, what they cost, and how many an hour needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from kvplan.plans.fleet import Fleet
from kvplan.plans.plan import Plan
from kvplan.record import record
from kvplan.units import ceil_div


@record()
class KindUse:
    """One kind of GPU: what the plans take of it, and what is there."""

    gpu: str
    plans: int
    """that run on it"""
    gpus: int
    """that they take"""
    spare: int
    """those of the spare engines, each as large as the kind's largest"""
    available: int | None
    """in the fleet; null: as many as asked for"""
    missing: int
    """of gpus and spare together; engines that fit no node count whole"""
    cost_per_hour: float | None
    """of gpus and spare, the cheapest offers first; null: a price is not known"""
    peak_gpus: int
    """of the busiest hour of the traces, without spare ones"""
    mean_gpus: float
    """of an hour of the traces on average, without spare ones"""

    @property
    def needed(self) -> int:
        return self.gpus + self.spare


@record()
class FleetUse:
    """All plans of a check against a fleet."""

    source: str
    """the fleet's file"""
    currency: str
    spare: int
    """engines of each kind that may be lost"""
    kinds: tuple[KindUse, ...]
    hours: int
    """of the longest trace; 0: no plan has one with times over two hours"""
    counted: int
    """plans that were counted"""
    uncounted: tuple[str, ...]
    """plans that could not be read, by name"""

    _JSON = (
        "source", "passed", "currency", "spare", "kinds", "cost_per_hour", "hours", "counted", "uncounted",
    )  # fmt: skip

    @property
    def passed(self) -> bool:
        """whether every kind has what is needed"""
        return not any(one.missing for one in self.kinds)

    @property
    def cost_per_hour(self) -> float | None:
        """of all kinds; null: a price is not known"""
        costs = [one.cost_per_hour for one in self.kinds]
        known = [Fraction(str(one)) for one in costs if one is not None]  # decimals add up exactly
        return float(sum(known)) if len(known) == len(costs) else None


def fleet_use(
    plans: Sequence[Plan],
    fleet: Fleet,
    loads: Mapping[int, Sequence[int]],
    uncounted: Sequence[str] = (),
) -> FleetUse:
    """The GPUs of the fleet that the plans take.

    loads: of plans by their place, the tokens that arrive in each hour. In the busiest one a plan needs all
    its engines, in others as many as the tokens' share of that, at least one; a trace that is shorter than
    another begins anew, and a plan without one needs all of them always. Spare are the GPUs of
    ``fleet.spare`` engines of each kind, as large as the kind's largest: so many may be lost, whichever they
    are.
    """
    hours = max((len(load) for load in loads.values()), default=0)
    kinds: dict[str, list[int]] = {}
    for place, plan in enumerate(plans):
        if plan.settings.gpu is not None:
            kinds.setdefault(plan.settings.gpu.slug, []).append(place)
    found = []
    for slug, places in kinds.items():
        taken = [plans[place] for place in places]
        gpus = sum(plan.gpus for plan in taken)
        spare = fleet.spare * max(plan.gpus_per_replica for plan in taken)
        each = [_hourly(plans[place], loads.get(place, ()), hours) for place in places]
        hourly = [sum(one) for one in zip(*each)]
        cost, there = _cost(fleet, slug, taken, gpus + spare), _available(fleet, slug)
        mean = Fraction(sum(hourly), len(hourly))
        lacking = _missing(fleet, slug, taken)
        a_hour = None if cost is None else float(cost)
        found.append(
            KindUse(slug, len(taken), gpus, spare, there, lacking, a_hour, max(hourly), round(float(mean), 2))
        )
    return FleetUse(
        fleet.source, fleet.currency, fleet.spare, tuple(found), hours,
        sum(map(len, kinds.values())), tuple(uncounted),
    )  # fmt: skip


def _hourly(plan: Plan, load: Sequence[int], hours: int) -> list[int]:
    """GPUs of each hour."""
    peak = max(load, default=0)
    if not peak:
        return [plan.gpus] * max(hours, 1)
    engines = [max(1, ceil_div(plan.replicas * load[hour % len(load)], peak)) for hour in range(hours)]
    whole = plan.gpus if plan.replicas <= 1 else 0
    return [whole or count * plan.gpus_per_replica for count in engines]


def _available(fleet: Fleet, slug: str) -> int | None:
    counts = [one.available for one in fleet.offers if one.gpu.slug == slug]
    return None if None in counts else sum(count for count in counts if count is not None)


def _missing(fleet: Fleet, slug: str, plans: Sequence[Plan]) -> int:
    """GPUs of engines that no place has room for: the largest engines first, each inside one node where it is
    no larger than one, else on whole nodes."""
    offers = [one for one in fleet.offers if one.gpu.slug == slug]
    if any(one.available is None for one in offers):
        return 0
    nodes: list[tuple[int, int]] = []  # (GPUs of a node, those that are free)
    for offer in offers:
        size = offer.gpus_per_node or offer.available or 1
        whole, rest = divmod(offer.available or 0, size)
        nodes += [(size, size)] * whole + ([(rest, rest)] if rest else [])
    engines = [plan.gpus_per_replica for plan in plans for _ in range(max(plan.replicas, 1))]
    engines += [max(engines)] * fleet.spare
    lacking = 0
    for gpus in sorted(engines, reverse=True):
        lacking += 0 if _placed(nodes, gpus) else gpus
    return lacking


def _placed(nodes: list[tuple[int, int]], gpus: int) -> bool:
    """Take room for one engine: in the fullest node that has it, else on empty ones."""
    fits = [(free, place) for place, (_, free) in enumerate(nodes) if free >= gpus]
    if fits:
        free, place = min(fits)
        nodes[place] = nodes[place][0], free - gpus
        return True
    empty = [place for place, (size, free) in enumerate(nodes) if size == free]
    if sum(nodes[place][0] for place in empty) < gpus or any(size >= gpus for size, _ in nodes):
        return False
    for place in empty:
        took = min(gpus, nodes[place][0])
        nodes[place] = nodes[place][0], nodes[place][1] - took
        gpus -= took
    return True


def _cost(fleet: Fleet, slug: str, plans: Sequence[Plan], gpus: int) -> Fraction | None:
    """The cheapest offers first; the plans' own price where the fleet has none."""
    priced = sorted(
        ((one.price_per_gpu_hour, one.available) for one in fleet.offers
         if one.gpu.slug == slug and one.price_per_gpu_hour is not None),
        key=lambda pair: pair[0],
    )  # fmt: skip
    if not priced:
        own = {plan.price_per_gpu_hour for plan in plans}
        price = own.pop() if len(own) == 1 else None
        return None if price is None else price * gpus
    total = Fraction(0)
    for price, available in priced:
        count = gpus if available is None else min(gpus, available)
        total, gpus = total + price * count, gpus - count
    return total + gpus * priced[-1][0]
