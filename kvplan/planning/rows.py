"""The rows of a plan's table: one for each kind of GPU and engine, each the best that the kind has.

The row of a kind is what a plan for that kind alone begins with, whatever stands beside it and however many
rows are shown; of kinds that do with as many GPUs the cheaper comes first, where no price is known the one
that draws least power. A kind without a row has a reason. With one kind there is a row for each pair of
formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from kvplan.engines.budget.law import Rejection
from kvplan.named import NamedTuple
from kvplan.planning.ask import COST, FEWEST, Ask, Speed
from kvplan.planning.found import BEFORE_POWER, Found, Key, Rejected, Searched
from kvplan.planning.money import estimate_of
from kvplan.planning.search import search
from kvplan.plans.fleet import Kind, Offer
from kvplan.record import replace

Each = Callable[[Ask, int], "Ask | None"]
"""The question to one offer by itself, at its longest context; None where that is less than the tokens
needed."""


class Row(NamedTuple):
    """An answer and what it answers: the ask of one engine."""

    ask: Ask
    found: Found


Sized = Callable[[Row], "Row | Rejection"]
"""A row with as many replicas as it needs, or why it does not serve the load."""


SIZED = 5
"""Rows that are sized at least, however few are shown."""


class Without(NamedTuple):
    """A kind without a row: why, and the candidate that came nearest. beyond: it comes after the rows that
    were asked for, and was not looked at to the end."""

    ask: Ask
    offer: Offer
    why: Rejection
    nearest: Rejected | None = None
    beyond: bool = False


class Rows(NamedTuple):
    """The table, in its order; kinds without a row; what was searched, by ask."""

    rows: tuple[Row, ...]
    without: tuple[Without, ...]
    searched: tuple[Searched, ...]


class _Part(NamedTuple):
    """The results of one joint search. place: of the ask among all."""

    place: int
    ask: Ask
    searched: Searched


def rows_of(asks: Sequence[Ask], top: int, *, each: Each | None = None, sized: Sized | None = None) -> Rows:
    """The first ``top`` rows of the table.

    asks: one for each engine. each: where the objective is the longest context, and it is not given. sized:
    where something else than the search says how many replicas a row takes; then at least `SIZED` rows are
    asked of it, for their order is another than the search's, and the best may not depend on how many are
    shown.
    """
    if sized is None:
        return _searched_rows(asks, top, each)
    table = resized(asks, _searched_rows(asks, max(top, SIZED), each), sized)
    shown, served = table.rows[:top], {row.found.offer.kind for row in table.rows[:top]}
    beyond: dict[Kind, Without] = {}
    for row in table.rows[top:]:
        offer = row.found.offer
        if offer.kind not in served:
            beyond.setdefault(offer.kind, Without(row.ask, offer, _after(shown), beyond=True))
    return table._replace(rows=shown, without=(*beyond.values(), *table.without))


def _searched_rows(asks: Sequence[Ask], top: int, each: Each | None) -> Rows:
    if len(asks) == 1 and len({offer.kind for offer in asks[0].offers}) == 1 and each is None:
        ask = asks[0]
        searched = search(ask, wanted=top)
        rows = tuple(Row(ask, found) for found in searched.found)
        served = {(0, row.found.offer.kind) for row in rows}
        return Rows(rows, tuple(_without([_Part(0, ask, searched)], served, rows)), (searched,))
    parts = [
        part
        for place, ask in enumerate(asks)
        for part in (_own_lengths(place, ask, top, each) if each else _at_once(place, ask, top))
    ]
    best: dict[tuple[int, Kind], Row] = {}
    for place, ask, searched in parts:
        for found in searched.found:
            kind = (place, found.offer.kind)
            if kind not in best or found.key < best[kind].found.key:
                best[kind] = Row(ask, found)
    ordered = sorted(best.values(), key=_place)
    shown = tuple(ordered[:top])
    served = {(place, kind) for place, kind in best if best[place, kind] in shown}
    return Rows(shown, tuple(_without(parts, served, shown)), _joined(len(asks), parts))


def resized(asks: Sequence[Ask], table: Rows, sized: Sized) -> Rows:
    """The table with each row as ``sized`` has it, in their new order."""
    rows: list[Row] = []
    without = list(table.without)
    late: list[tuple[Ask, Rejected]] = []
    for row in table.rows:
        found = sized(row)
        if isinstance(found, Row):
            rows.append(found)
        else:
            without.append(Without(row.ask, row.found.offer, found))
            late.append((row.ask, Rejected(row.found.one, row.found.offer, found, 1)))
    served = {row.found.offer.kind for row in rows}
    kept = {one.offer.kind: one for one in reversed(without) if one.offer.kind not in served}
    without = [one for one in without if kept.get(one.offer.kind) is one or one in table.without]
    rows.sort(key=_place)
    searched = tuple(
        one._replace(rejected=(*one.rejected, *(why for ask, why in late if ask is asked)))
        for asked, one in zip(asks, table.searched, strict=True)
    )
    return Rows(tuple(rows), tuple(without), searched)


def _at_once(place: int, ask: Ask, top: int) -> Iterator[_Part]:
    yield _Part(place, ask, search(ask, wanted=top, by_kind=True))


def _own_lengths(place: int, ask: Ask, top: int, each: Each) -> Iterator[_Part]:
    """Each offer with its own longest context; left out where that is shorter than ``top`` other kinds have
    whose engines stay inside a node (the first place of the total order)."""
    lengths: dict[Kind, int] = {}
    for offer in ask.offers:
        least = sorted(lengths.values(), reverse=True)[top - 1] if len(lengths) >= top else 0
        alone = replace(ask, offers=(offer,))
        own = each(alone, least)
        if own is None:
            yield _Part(place, alone, Searched((), (), 0, 0, (offer.kind,)))
            continue
        searched = search(own, wanted=1, by_kind=True)
        for found in searched.found:
            if not found.key[0]:
                lengths[offer.kind] = max(lengths.get(offer.kind, 0), found.max_model_len)
        yield _Part(place, own, searched)


def _place(row: Row) -> tuple[Key, float, Key]:
    ask, found = row
    speed = estimate_of(ask, found) if ask.objective == FEWEST else None
    return place_of(row, speed, found.million)


def place_of(row: Row, speed: Speed | None, million: float | None) -> tuple[Key, float, Key]:
    """The place among rows of other kinds: under cost by the price of a million tokens, ``million``; else the
    total order up to what the GPUs draw, then the energy of a token, as what a token costs goes by it where
    no price is known: watts · GPUs · likely TPOT / requests, which are as many in each row (last where one is
    not known)."""
    ask, found = row
    if ask.objective == COST:
        return (found.key[0], int(million is None)), million or 0.0, found.key
    watts = found.offer.gpu.power_watts
    energy = inf if speed is None or watts is None else watts * found.gpus * speed.tpot[1]
    return found.key[:BEFORE_POWER], energy, found.key


def _joined(asks: int, parts: Sequence[_Part]) -> tuple[Searched, ...]:
    """The results for each question, over its offers."""
    found = []
    for place in range(asks):
        own = [part.searched for part in parts if part.place == place]
        found.append(
            Searched(
                tuple(one for part in own for one in part.found),
                tuple(one for part in own for one in part.rejected),
                sum(part.considered for part in own),
                sum(part.dominated for part in own),
            )
        )
    return tuple(found)


def _without(
    parts: Sequence[_Part], served: set[tuple[int, Kind]], shown: Sequence[Row]
) -> Iterator[Without]:
    """shown: the rows that the kinds beyond them come after."""
    done = set(served)
    for place, ask, searched in parts:
        rejected: dict[Kind, list[Rejected]] = {}
        everywhere = [one for one in searched.rejected if one.offer is None]
        for one in searched.rejected:
            if one.offer is not None:
                rejected.setdefault(one.offer.kind, []).append(one)
        more = {*searched.beyond, *(found.offer.kind for found in searched.found)}
        for offer in ask.offers:
            if (place, offer.kind) in done:
                continue
            done.add((place, offer.kind))
            own = rejected.get(offer.kind) or everywhere
            nearest = min(own, key=_far, default=None)
            if offer.kind in more and shown:
                yield Without(ask, offer, _after(shown), beyond=True)
            elif nearest is None:
                yield Without(ask, offer, Rejection("not-tried", "nothing was tried on it"))
            else:
                yield Without(ask, offer, nearest.why, nearest)


def _after(shown: Sequence[Row]) -> Rejection:
    rows = "the row that was" if len(shown) == 1 else f"the {len(shown)} rows that were"
    return Rejection("beyond-top", f"it comes after {rows} asked for, if it serves at all")


_STAGES = (
    "tpot", "ttft", "too-few-gpus", "pool-too-small", "max-num-seqs", "not-enough-memory", "no-pool",
    "no-memory-for-cache", "weights", "max-gpus",
)  # fmt: skip
"""Reasons by how far their candidates came, the farthest first; others are refusals of engine or policy."""


def _far(rejected: Rejected) -> tuple[int, int, int, int]:
    """Of two candidates the one that came farther; at one stage the one that lacks less, of equal ones that
    with more GPUs (weights and cache are divided finest there)."""
    code = rejected.why.code
    stage = _STAGES.index(code) if code in _STAGES else len(_STAGES)
    return stage, rejected.why.far, -rejected.one.layout.gpus, rejected.one.place
