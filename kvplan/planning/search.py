"""The search: every candidate judged, or proved not to matter by a bound; the best by a total order.

A candidate is a class (weights, cache format, layout), a GPU, max_model_len, max_num_seqs and a number of
replicas. Bounds save work and never change the answer: on replicas (`_fewest_gpus`), on max_num_seqs
(`_most`), on what an engine holds (`_is_behind`), on GPUs or the price of a token (`_left_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import ceil
from operator import attrgetter, itemgetter

from kvplan.engines.budget.law import Capacity, CapacityModel, Rejection
from kvplan.errors import KvplanError
from kvplan.planning.ask import COST, FEWEST, MOST_GPUS, REQUESTS, Ask, Speed, node_of
from kvplan.planning.confirm import has_slots, most_confirmed
from kvplan.planning.found import Found, Key, Rejected, Searched, also_fits, dealt_fits, fitting, key_of
from kvplan.planning.money import cost_per_million, estimate_of, least_cost
from kvplan.planning.space import Class, classes, seqs_of
from kvplan.planning.support import unsupported
from kvplan.plans.fleet import Kind, Offer
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.units import ceil_div, gib

_BOUNDS = {FEWEST: 2, COST: 3}
"""Places of the total order that a bound is about: nodes crossed, then GPUs, or whether a token has a price,
and that."""


def search(ask: Ask, *, wanted: int = 1, by_kind: bool = False) -> Searched:
    """The best ``wanted`` answers and why the others were rejected. wanted 0: everything, nothing left out.

    by_kind: the best of each kind of GPU, as if it were the only one, of so many kinds and of those that take
    no more GPUs (or money for a token) than the last of them; `Searched.beyond` names the others.
    """
    return _Search(ask, wanted, by_kind=by_kind).run()


class _Search:
    def __init__(self, ask: Ask, wanted: int, *, by_kind: bool) -> None:
        self.ask, self.wanted, self.by_kind = ask, wanted, by_kind
        self.others = [ask.alone(demand) for demand in ask.also]
        self.seqs, self.lengths = seqs_of(ask), tuple(sorted(set(ask.lengths)))
        self.each = len(self.seqs) * len(self.lengths)
        self.bounded = wanted > 0 and ask.objective in _BOUNDS
        self.places = _BOUNDS.get(ask.objective, 0)
        self.divided = self.bounded and ask.objective == FEWEST and len(ask.shapes) == 1
        self.divided = self.divided and not ask.timed and not ask.also
        self.best: dict[Hashable, Found] = {}
        self.worst: Key | None = None
        self.beyond: set[Kind] = set()
        self.rejected: list[Rejected] = []
        self.considered = self.dominated = 0
        self.settings: dict[int, Settings] = {}
        self.laws: dict[Hashable, CapacityModel] = {}

    def run(self) -> Searched:
        pairs = [
            (self._bound(one, offer), one.quality_rank, rank, one.place, one)
            for one in self._alive()
            for rank, offer in enumerate(self.ask.offers)
        ]
        kinds = [self._kind(offer) for offer in self.ask.offers]
        for bound, _, rank, _, one in sorted(pairs, key=itemgetter(0, 1, 2, 3)):
            self.considered += self.each
            offer, kind = self.ask.offers[rank], kinds[rank]
            why = kind if isinstance(kind, Rejection) else self._unpriced(offer)
            why = why or unsupported(self.ask, one, offer)
            if why is not None:
                self.rejected.append(Rejected(one, offer, why, self.each))
            elif self.bounded and self._left_out(offer, bound):
                self.dominated += self.each
            else:
                self._judge(one, rank, self._law(one, offer, kind))
        return self._searched()

    def _unpriced(self, offer: Offer) -> Rejection | None:
        if offer.price_per_gpu_hour is None and (self.ask.objective == COST or self.ask.max_cost is not None):
            return Rejection("price", "its price is not known: --prices or a fleet file says it")
        return None

    def _alive(self) -> Iterator[Class]:
        """Classes that no GPU is needed to reject."""
        for one, why in classes(self.ask):
            if why is None:
                yield one
            else:
                count = self.each * len(self.ask.offers)
                self.considered += count
                self.rejected.append(Rejected(one, None, why, count))

    def _law(self, one: Class, offer: Offer, kind: Hashable) -> CapacityModel:
        law = self.laws.get((one.place, kind))
        if law is None:
            settings = self._settings(one)
            law = self.ask.laws.law(one.variant.model, self.ask.choice, settings, offer.gpu, kind)
            self.laws[one.place, kind] = law
        return law

    def _searched(self) -> Searched:
        """The best that were wanted, and the kinds of GPU that come after them."""
        found = sorted(self.best.values(), key=attrgetter("key"))
        if not self.by_kind:
            found = found[: self.wanted or None]
        elif self.bounded and self.worst is not None:
            last = self.worst[: self.places]
            self.beyond |= {one.offer.kind for one in found if one.key[: self.places] > last}
            found = [one for one in found if one.key[: self.places] <= last]
        served = {one.offer.kind for one in found}
        beyond = tuple(sorted(self.beyond - served))
        return Searched(tuple(found), tuple(self.rejected), self.considered, self.dominated, beyond)

    def _left_out(self, offer: Offer, bound: Key) -> bool:
        """Whether nothing of the class can be among the wanted answers: classes come in the order of the GPUs
        (or the price) that a plan takes at least, and this one's lie above the worst answer that is still
        wanted; by kind, above the best of its own kind, or the last kind that is wanted."""
        if self.worst is not None and bound > self.worst[: self.places]:
            if self.by_kind:
                self.beyond.add(offer.kind)
            return True
        own = self.best.get(offer.kind) if self.by_kind else None
        return own is not None and bound > own.key[: self.places]

    def _settings(self, one: Class) -> Settings:
        found = self.settings.get(one.place)
        if found is None:
            found = self.settings[one.place] = one.settings(self.ask.base)
        return found

    def _kind(self, offer: Offer) -> Hashable:
        try:
            return self.ask.laws.kind(offer.gpu, self.ask.choice, replace(self.ask.base, gpu=offer.gpu))
        except KvplanError as error:
            return Rejection(error.code, error.message)

    def _bound(self, one: Class, offer: Offer) -> Key:
        """Below this no plan of the class lies in the total order."""
        crossing = int(one.layout.tp > node_of(offer))
        if self.ask.objective != COST:
            return crossing, one.layout.gpus
        least = least_cost(self.ask, one, offer, self.seqs[-1] // self.ask.samples) if self.bounded else 0.0
        return crossing, int(least is None), least or 0.0

    def _judge(self, one: Class, rank: int, law: CapacityModel) -> None:
        """The class on one GPU, at every length: the best of it is kept, or why it is rejected."""
        why: Rejection | None = None
        count = 0
        for length in self.lengths:
            offer = self.ask.offers[rank]
            key = offer.kind if self.by_kind else (rank, one.variant.label, one.kv)
            if self._is_behind(key, one, offer, law, length):
                continue
            judged = self._at_length(one, rank, law, length)
            if isinstance(judged, Found) and self._is_better(key, judged):
                held = most_confirmed(self.ask, judged, self.seqs[-1])
                if held != judged.per_engine:
                    judged = self._at_length(one, rank, law, length, most=held)
            if isinstance(judged, Rejection):
                why, count = why or judged, count + len(self.seqs)
            elif self._is_better(key, judged):
                self.best[key] = judged
                if self.bounded and len(self.best) >= self.wanted:
                    self.worst = sorted(found.key for found in self.best.values())[self.wanted - 1]
        if why is not None:
            self.rejected.append(Rejected(one, self.ask.offers[rank], why, count))

    def _is_behind(self, key: Hashable, one: Class, offer: Offer, law: CapacityModel, length: int) -> bool:
        """Whether the class serves the load, and with more GPUs than the best of its key: nothing of it would
        be kept, and one pool shows it.

        Replicas follow by division, so that to be no worse an engine must hold ``needed`` requests. A pool of
        the least max_num_seqs that runs so many, and holds fewer, says that no other holds more than it:
        smaller ones run fewer, larger ones leave no larger pool."""
        ask, layout, best = self.ask, one.layout, self.best.get(key)
        limit = ask.limit(offer)
        limit = MOST_GPUS if limit is None else limit
        if best is None or not self.divided or layout.gpus > limit:
            return False
        if int(layout.tp > node_of(offer)) < best.key[0]:
            return False
        engines = best.gpus // layout.gpus * layout.pools
        needed = ceil_div(ask.requests, engines) if engines else ask.requests + 1
        tried = [seqs for seqs in self.seqs if seqs // ask.samples]
        seqs = next((seqs for seqs in tried if seqs // ask.samples >= needed), tried[-1] if tried else 0)
        room = law.room(offer.gpu, seqs * one.limit_ways, length, safe=ask.safe) if seqs else None
        if not isinstance(room, Capacity):
            return False
        held = min(seqs // ask.samples, fitting(ask, room))
        if not held or held >= needed:
            return False
        return ceil_div(ceil_div(ask.requests, held), layout.pools) * layout.gpus <= limit

    def _is_better(self, key: Hashable, judged: Found) -> bool:
        return key not in self.best or judged.key < self.best[key].key

    def _at_length(
        self, one: Class, rank: int, law: CapacityModel, length: int, *, most: int | None = None
    ) -> Found | Rejection:
        """The class with pools for requests of such a length. most: of one engine, where it said so."""
        ask, offer = self.ask, self.ask.offers[rank]
        limit = ask.limit(offer)
        limit = MOST_GPUS if limit is None else limit
        layout = one.layout
        if layout.gpus > limit:
            return Rejection(
                "max-gpus", f"one engine takes {layout.gpus} GPUs; {limit} may be used", layout.gpus
            )
        found = self._most(ask, law, offer, length, one.limit_ways)
        if isinstance(found, Rejection):
            return found
        capacity, block = found
        capacity = capacity if most is None else most
        if not capacity:
            return Rejection("pool-too-small", f"no engine starts with a slot of {length:,} tokens")
        least = 1
        for other in self.others:
            held = self._most(other, law, offer, length, one.limit_ways)
            if isinstance(held, Rejection):
                return held
            least = max(least, ceil_div(ceil_div(other.requests, held[0]), layout.pools))
        timed = ask.timed
        if timed:
            paced = self._paced(one, offer, length, capacity, block)
            if isinstance(paced, Rejection):
                return paced
            capacity = paced
        flow = self._under_way(one, offer, length, capacity, block, least)
        if isinstance(flow, Rejection):
            return flow
        least, requests = flow
        deal = self._most_requests if ask.objective == REQUESTS else self._fewest_gpus
        dealt = deal(law, offer, length, one, capacity, least, limit, requests)
        if isinstance(dealt, Rejection):
            return dealt
        replicas, per_engine = dealt
        seqs = self._seqs(per_engine, replicas * layout.pools, capacity if timed else None)
        room = law.room(offer.gpu, seqs * one.limit_ways, length, safe=ask.safe)
        assert isinstance(room, Capacity)
        if ask.objective == REQUESTS:
            capacity = per_engine
        elif timed:
            capacity = min(capacity, seqs // ask.samples)
        else:
            capacity = min(seqs // ask.samples, fitting(ask, room))
        gpus = replicas * layout.gpus
        made = Found((), one, offer, length, seqs, replicas, gpus, capacity, per_engine, block)
        if ask.objective == COST:
            cost = cost_per_million(ask, made, estimate_of(ask, made))
            made = made._replace(million=None if cost is None else cost[1])
        return made._replace(key=key_of(ask.objective, made, rank))

    def _most_requests(
        self, law: CapacityModel, offer: Offer, length: int, one: Class, capacity: int, least: int,
        limit: int, requests: int,
    ) -> tuple[int, int] | Rejection:  # fmt: skip
        """(Replicas, requests of one engine) on all GPUs that may be used, the shapes dealt evenly."""
        layout = one.layout
        replicas = limit // layout.gpus
        while (
            capacity
            and replicas >= least
            and not self._dealt(law, offer, length, capacity, one, replicas, capacity)
        ):
            capacity -= 1
        together = replicas * layout.pools * capacity
        if together >= requests and replicas >= least:
            return replicas, capacity
        needed = ceil_div(ceil_div(requests, capacity), layout.pools) if capacity else replicas + 1
        return self._too_few(together, max(least, needed) * layout.gpus, limit, requests)

    def _fewest_gpus(
        self, law: CapacityModel, offer: Offer, length: int, one: Class, capacity: int, least: int,
        limit: int, requests: int,
    ) -> tuple[int, int] | Rejection:  # fmt: skip
        """(Replicas, requests of one engine) for the requests that are asked for, by division: an engine
        holds what it holds whatever its neighbours do."""
        layout = one.layout
        replicas = max(least, ceil_div(ceil_div(requests, capacity), layout.pools))
        most_gpus = max(limit, MOST_GPUS)
        while replicas * layout.gpus <= most_gpus and not self._dealt(
            law, offer, length, ceil_div(requests, replicas * layout.pools), one, replicas, capacity
        ):
            replicas += 1
        if replicas * layout.gpus > limit:
            held_now = limit // layout.gpus * layout.pools * capacity
            return self._too_few(held_now, replicas * layout.gpus, limit, requests)
        return replicas, ceil_div(requests, replicas * layout.pools)

    def _dealt(
        self, law: CapacityModel, offer: Offer, length: int, requests: int, one: Class, replicas: int,
        capacity: int,
    ) -> bool:  # fmt: skip
        """Whether so many requests of a mix fit as whole requests (of one shape they do), and what is asked
        of the pools as well."""
        ask, pools = self.ask, replicas * one.layout.pools
        if not ask.also and (len(ask.shapes) == 1 or requests == 1):
            return True
        seqs = self._seqs(requests, pools, capacity if ask.timed else None)
        room = law.room(offer.gpu, seqs * one.limit_ways, length, safe=ask.safe)
        if not isinstance(room, Capacity) or not dealt_fits(ask, room, requests):
            return False
        return not ask.also or (fitting(ask, room) > 0 and also_fits(ask, room, pools))

    def _seqs(self, requests: int, pools: int, most: int | None = None) -> int:
        """The smallest max_num_seqs that runs so many requests with all their samples in one of the pools:
        the one whose pool is largest. most: requests that keep the times asked for, for a server admits what
        max_num_seqs lets it; where requests come at a rate so many may run, for they do not come evenly."""
        if self.ask.paced and most is not None and not has_slots(self.ask):
            return most * self.ask.samples
        needed = self.ask.sequences(requests, pools)
        seqs = next(value for value in self.seqs if value >= needed)
        return seqs if most is None else min(seqs, most * self.ask.samples)

    def _too_few(self, held: int, needed: int, limit: int, requests: int) -> Rejection:
        hold = f"which hold {held:,} of {requests:,} requests"
        if held >= requests and self.ask.also:
            asked = " and ".join(f"{one.requests:,} of {one.shape.tokens:,} tokens" for one in self.ask.also)
            hold = f"which do not hold {asked} as well"
        return Rejection(
            "too-few-gpus", f"{needed} GPUs would hold them; {limit} may be used, {hold}", needed - limit
        )

    def _most(
        self, ask: Ask, law: CapacityModel, offer: Offer, length: int, ways: int
    ) -> tuple[int, int] | Rejection:
        """(The most requests that one engine holds, the unit in which it shares prompts)."""
        gpu, safe, seqs, samples = offer.gpu, ask.safe, self.seqs, ask.samples
        if seqs[-1] < samples:
            return Rejection("max-num-seqs", f"{samples} samples of one prompt need max_num_seqs {samples}")
        first = law.room(gpu, seqs[0] * ways, length, safe=safe)
        if isinstance(first, Rejection):
            return first
        fits = {0: fitting(ask, first)}

        def fit(place: int) -> int:
            if place not in fits:
                room = law.room(gpu, seqs[place] * ways, length, safe=safe)
                fits[place] = 0 if isinstance(room, Rejection) else fitting(ask, room)
            return fits[place]

        if fits[0] == 0:
            longest = max(ask.shapes, key=lambda shape: shape.tokens)
            why = first.refused(longest.tokens, longest.output_tokens)
            if why is not None and why.code == "request-too-long":
                return why
            return Rejection("pool-too-small", f"a pool of {gib(first.pool_bytes)} holds no request of"
                                          f" {longest.tokens:,} tokens")  # fmt: skip
        # The last place with fit(place) >= seqs[place] / samples; the more of them, the less the pool holds,
        # never more (activations and windows only grow).
        low, high = -1, len(seqs)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fit(middle) >= seqs[middle] // samples else (low, middle)
        tried = [place for place in (low, high) if 0 <= place < len(seqs)]
        most = max(min(seqs[place] // samples, fit(place)) for place in tried)
        if not most:
            return Rejection(
                "pool-too-small", f"no max_num_seqs that runs {samples} samples leaves room for them"
            )
        return most, first.block

    def _speed(self, one: Class, offer: Offer, length: int, block: int) -> Callable[[int], Speed | Rejection]:
        """Times of one engine with so many requests."""
        ask = self.ask
        assert ask.speed is not None
        settings = replace(one.settings(ask.base), gpu=offer.gpu, max_model_len=length)
        speed, model = ask.speed, one.variant.model
        return lambda requests: speed(model, offer.gpu, settings, ask.running(offer, requests, block))

    def _under_way(
        self, one: Class, offer: Offer, length: int, most: int, block: int, least: int
    ) -> tuple[int, int] | Rejection:
        """(The least replicas, requests at once on all of them).

        Where requests come at a rate λ, c of them on one engine are served at
        c / (TTFT(c) + answer · TPOT(c)) (Little's law): the engines are those that λ takes with the ``most``
        that may run on each, and c is the least number that keeps up with an engine's share of λ.
        """
        ask = self.ask
        if not ask.paced or ask.rate is None:
            return least, ask.requests
        speed_of, answer, pools = (
            self._speed(one, offer, length, block),
            ask.mean.output_tokens,
            one.layout.pools,
        )

        def served(requests: int) -> float | Rejection:
            speed = speed_of(requests)
            if isinstance(speed, Rejection):
                return speed
            return requests / (speed.ttft[ask.end] + answer * speed.tpot[ask.end])

        full = served(most)
        if isinstance(full, Rejection):
            return full
        replicas = max(least, ceil(float(ask.rate) / full / pools))
        share = float(ask.rate) / (replicas * pools)
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            rate = served(middle)
            low, high = (low, middle) if isinstance(rate, float) and rate >= share else (middle, high)
        return replicas, high * replicas * pools

    def _paced(self, one: Class, offer: Offer, length: int, most: int, block: int) -> int | Rejection:
        """The most requests of one engine with which TPOT and TTFT are met."""
        ask, speed_of = self.ask, self._speed(one, offer, length, block)

        def late(requests: int) -> Rejection | None:
            speed = speed_of(requests)
            if isinstance(speed, Rejection):
                return speed
            for name, limit, times in (("tpot", ask.tpot, speed.tpot), ("ttft", ask.ttft, speed.ttft)):
                value = times[ask.end]
                if limit is not None and value > limit:
                    about = f"{value * 1000:,.1f} ms with {requests:,} running"
                    asked = f"{float(limit) * 1000:,.1f} ms asked"
                    return Rejection(name, f"{name.upper()} about {about}; {asked}")
            return None

        why = late(1)
        if why is not None:
            return why
        low, high = 1, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if late(middle) else (middle, high)
        return low
