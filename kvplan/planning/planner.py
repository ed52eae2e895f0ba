"""From an ask to a plan, with everything that a reader needs to believe it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from kvplan.planning.ask import CONTEXT, Ask
from kvplan.planning.confirm import holds
from kvplan.planning.found import Found, Searched
from kvplan.planning.options import host_tier, option_of
from kvplan.planning.pareto import measures, pareto_front
from kvplan.planning.reasons import reasons_of, sensitivity_of, steps_of, suggested_fixes
from kvplan.planning.results import Option, PlanResult, Unserved
from kvplan.planning.rows import Each, Row, Sized, Without, place_of, rows_of
from kvplan.plans.plan import LIKELY, QUALITIES, SAFE, Plan, Requirements
from kvplan.plans.question import without_host
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.results import EngineRef, ModelRef

ALTERNATIVES = 5


def make_plan(
    asks: Sequence[Ask],
    *,
    named: str,
    top: int = ALTERNATIVES,
    pareto: bool = False,
    workload: Workload | None = None,
    currency: str = "",
    prices: str = "",
    depth: bool = True,
    warnings: tuple[str, ...] = (),
    each: Each | None = None,
    sized: Sized | None = None,
) -> PlanResult:
    """The best plan and its alternatives.

    asks: the same question to one engine or several. named: the model as the user wrote it. top: how many
    rows. depth: fixes, steps and sensitivity too. each: as in `rows_of`. sized: gives each row its replicas
    (and layout) by something that the search does not know, or says why there is none. Raises KvplanError
    where the question is wrong.
    """
    table = rows_of(asks, max(top, 1), each=each, sized=sized)
    made = _confirmed(table.rows)
    options = tuple(option for _, option in made)
    own, why = _own(asks, options, each, sized) if options else (None, ())
    ask, found = made[0][0] if made else (asks[0], None)
    whole = replace(ask, offers=asks[0].offers)
    searched = next(
        one for asked, one in zip(asks, table.searched, strict=True) if asked.choice is ask.choice
    )
    shown = tuple(option_of(one.ask, one.found) for one in pareto_front(whole)) if pareto else ()
    model = ask.variants[0].model
    considered, judged = _counts(table.searched)
    return PlanResult(
        model=ModelRef(model.id, model.source),
        engine=EngineRef(ask.choice.engine.name, ask.choice.version),
        objective=ask.objective,
        quality=ask.quality,
        pool=SAFE if ask.safe else LIKELY,
        requests=_under_way(ask, found),
        rate=float(ask.rate) if ask.paced and ask.rate is not None else None,
        shapes=ask.shapes,
        plan=None if found is None else plan_of(ask, found, options[0], named, workload),
        options=options,
        own=own,
        more_options=sum(one.beyond for one in table.without),
        unserved=tuple(_unserved(one) for one in table.without),
        pareto=shown,
        pareto_by=measures(ask) if pareto else (),
        also=ask.also,
        reasons=reasons_of(searched),
        ways_out=suggested_fixes(whole, found) if depth else (),
        steps=steps_of(ask, found) if depth and found is not None else (),
        sensitivity=sensitivity_of(ask, found) if depth and found is not None else (),
        considered=considered,
        judged=judged,
        currency=currency,
        prices=prices,
        warnings=(*warnings, *why),
    )


def _under_way(ask: Ask, found: Found | None) -> int:
    """Requests at once: as many as are asked for, or as their rate keeps under way."""
    return ask.requests if found is None or not ask.paced else found.under_way


def _confirmed(rows: Sequence[Row]) -> list[tuple[Row, Option]]:
    """The rows as options; of several kinds in the order of the figures that are shown."""
    for row in rows:
        # The engine is asked for every answer that is shown: a difference would be a bug of the search.
        assert holds(row.ask, row.found), f"the engine does not confirm {row.found}"
    made = [(row, option_of(row.ask, row.found)) for row in rows]
    if len({row.found.offer.kind for row in rows}) > 1:
        made.sort(key=lambda pair: place_of(pair[0], pair[1].speed, pair[1].million()))
    return made


def _own(
    asks: Sequence[Ask], options: Sequence[Option], each: Each | None, sized: Sized | None
) -> tuple[Option | None, tuple[str, ...]]:
    """The best row with the checkpoint that was asked for, where no option has it; or why there is none."""
    model = asks[0].variants[0].model
    if any(one.model == model.id for one in options):
        return None, ()
    table = rows_of([replace(ask, variants=ask.variants[:1]) for ask in asks], 1, each=each, sized=sized)
    if table.rows:
        return _confirmed(table.rows)[0][1], ()
    why = next((one.why.message for one in table.without), "nothing serves the load")
    return None, (f"no row for {model.id} itself: {why}",)


def _counts(searched: Sequence[Searched]) -> tuple[int, int]:
    """(candidates that were considered, those of them that the engine's rules judged)."""
    considered = sum(one.considered for one in searched)
    rejected = (entry for one in searched for entry in one.rejected)
    static = sum(entry.candidates for entry in rejected if entry.offer is None)
    return considered, considered - static - sum(one.dominated for one in searched)


def _unserved(one: Without) -> Unserved:
    nearest = one.nearest
    return Unserved(
        one.ask.engine,
        one.offer.gpu.slug,
        one.offer.where,
        one.why.code,
        one.why.message,
        "" if nearest is None else nearest.one.words(),
    )


def plan_of(ask: Ask, best: Found, option: Option, named: str, workload: Workload | None) -> Plan:
    """The plan of an option."""
    longest = max(shape.tokens for shape in ask.shapes)
    model = ask.variants[0].model
    kept = best.one.variant.model
    # The workload says what is required where requests differ, share, or come at a rate.
    plain = len(ask.shapes) == 1 and not ask.shares and not ask.paced
    own = Workload(
        ask.shapes, requests_in_flight=ask.requests, shared_prefix_tokens=ask.prefix, samples=ask.samples
    )
    return Plan(
        name=f"{kept.id.rpartition('/')[2].lower()}-{option.gpus}x-{option.gpu}",
        model=named if kept is model else kept.id,
        engine=ask.engine,
        gpus=option.gpus,
        settings=without_host(option.settings),  # which the requirement says
        serve=option.serve.pairs,
        workload=own
        if workload is None
        else replace(workload, shapes=ask.shapes, requests_in_flight=None if ask.paced else ask.requests),
        require=Requirements(
            requests=ask.requests if plain else None,
            tokens=longest if plain else None,
            headroom=ask.headroom,
            max_model_len=best.max_model_len if ask.objective == CONTEXT else longest,
            host_memory_bytes=host_tier(ask, best)[1],
            pool=SAFE if ask.safe else LIKELY,
            **_times(ask.goodput, workload),
        ),
        quality=_loosest(ask.quality, best.one.tier),
        price_per_gpu_hour=best.offer.price_per_gpu_hour,
    )


def _times(goodput: Fraction | None, workload: Workload | None) -> dict[str, Any]:
    """The requirements of the times that a simulation was asked to keep."""
    if goodput is None or workload is None:
        return {}
    return {
        "goodput": goodput,
        "ttft_seconds": workload.ttft_seconds, "ttft_percentile": goodput * 100,
        "tpot_seconds": workload.tpot_seconds, "tpot_percentile": goodput * 100,
    }  # fmt: skip


def _loosest(asked: str, taken: str) -> str:
    """The quality policy to hold the plan to: a format given by name may be below the policy."""
    place = QUALITIES.index(taken) if taken in QUALITIES else len(QUALITIES) - 1
    return QUALITIES[max(QUALITIES.index(asked), place)]
