"""From an ask to a plan, with everything that a reader needs to believe it. Pure."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from kvplan.planning.ask import COST, REQUESTS, Ask
from kvplan.planning.found import Found, Searched
from kvplan.planning.options import holds, option_of
from kvplan.planning.reasons import reasons_of, sensitivity_of, steps_of, ways_out
from kvplan.planning.results import Option, PlanResult
from kvplan.planning.search import search
from kvplan.plans.plan import LIKELY, SAFE, Plan, Requirements
from kvplan.plans.workload import Shape, Workload
from kvplan.results import EngineRef, ModelRef

ALTERNATIVES = 5
FRONT_GPUS = 8
"""As many GPUs a front looks at where nobody says how many there are."""


def make_plan(
    ask: Ask,
    *,
    named: str,
    engine: str,
    top: int = ALTERNATIVES,
    pareto: bool = False,
    workload: Workload | None = None,
    currency: str = "",
    depth: bool = True,
    warnings: tuple[str, ...] = (),
) -> PlanResult:
    """The best plan and its alternatives.

    named: the model as the user wrote it; engine: ``name@version`` for the plan. top: how many options.
    depth: work out ways out, steps and sensitivity too. Raises KvplanError where the question is wrong.
    """
    searched = search(ask, wanted=max(top, 1))
    chosen = _several(ask, searched, top)
    for found in chosen:
        # The engine is asked for every answer that is shown: a difference would be a bug of the search.
        assert holds(ask, found), f"the engine does not confirm {found}"
    options = tuple(option_of(ask, found) for found in chosen)
    best = chosen[0] if chosen else None
    front = tuple(option_of(asked, found) for asked, found in _front(ask)) if pareto else ()
    static = sum(fallen.candidates for fallen in searched.fallen if fallen.offer is None)
    model = ask.variants[0].model
    return PlanResult(
        model=ModelRef(model.id, model.source),
        engine=EngineRef(ask.choice.engine.name, ask.choice.version),
        objective=ask.objective,
        quality=ask.quality,
        requests=ask.requests,
        shapes=ask.shapes,
        best=None if best is None else _plan(ask, best, options[0], named, engine, workload),
        options=options,
        pareto=front,
        reasons=reasons_of(searched),
        ways_out=ways_out(ask, best) if depth else (),
        steps=steps_of(ask, best) if depth and best is not None else (),
        sensitivity=sensitivity_of(ask, best) if depth and best is not None else (),
        considered=searched.considered,
        judged=searched.considered - static - searched.dominated,
        currency=currency,
        warnings=warnings,
    )


def _several(ask: Ask, searched: Searched, top: int) -> list[Found]:
    """The best, then what else is worth a look. One kind of GPU: the best of each pair of formats. Several:
    first each smaller GPU that does with the same number (formats are cheaper than GPUs), then the best of
    the other kinds."""
    if len(ask.offers) == 1 or not searched.found:
        return list(searched.found[:top])
    kinds: dict[tuple[str, str], Found] = {}
    for found in searched.found:
        kinds.setdefault((found.offer.gpu.slug, found.offer.where), found)
    first, *others = kinds.values()
    chosen, smallest = [first], memory_of(first)
    for found in others:
        if found.gpus == first.gpus and memory_of(found) < smallest:
            chosen.append(found)
            smallest = memory_of(found)
    rest = [found for found in others if found not in chosen]
    return sorted([*chosen, *rest][:top], key=lambda found: found.key)


def memory_of(found: Found) -> int:
    """Memory of one of its GPUs."""
    return found.offer.gpu.memory_total_bytes or found.offer.gpu.memory_nvml_bytes or 0


def _front(ask: Ask) -> list[tuple[Ask, Found]]:
    """What no other beats in GPUs (their cost under that objective), requests and their length together: the
    most requests of 1, 2, 4 … GPUs, as long as in the ask, and half, twice and four times as long."""
    limits = [limit for offer in ask.offers if (limit := ask.limit(offer)) is not None]
    most = max(limits, default=FRONT_GPUS)
    points: list[tuple[Ask, Found]] = []
    for stretched in _stretched(ask):
        count = 1
        while count <= most:
            asked = replace(stretched, objective=REQUESTS, requests=1, max_gpus=count)
            points += [(asked, found) for found in search(asked, wanted=0).found]
            count *= 2
    by_cost = ask.objective == COST

    def price(found: Found) -> Fraction | int:
        return (found.cost or 0) if by_cost else found.gpus

    points.sort(key=lambda pair: (price(pair[1]), -pair[1].requests, -pair[1].max_model_len, pair[1].key))
    front: list[tuple[Ask, Found]] = []
    for asked, found in points:
        if not any(
            price(other) <= price(found)
            and other.requests >= found.requests
            and other.max_model_len >= found.max_model_len
            for _, other in front
        ):
            front.append((asked, found))
    return front


def _stretched(ask: Ask) -> list[Ask]:
    """The ask with requests half, just, twice and four times as long, as far as the model goes."""
    own = ask.variants[0].model.max_model_len
    asks = []
    for up, down in ((1, 2), (1, 1), (2, 1), (4, 1)):
        shapes = tuple(
            Shape(max(1, shape.input_tokens * up // down), shape.output_tokens * up // down, shape.weight)
            for shape in ask.shapes
        )
        longest = max(shape.tokens for shape in shapes)
        if up == down or own is None or longest <= own:
            asks.append(replace(ask, shapes=shapes, lengths=(longest,)))
    return asks


def _plan(ask: Ask, best: Found, option: Option, named: str, engine: str, workload: Workload | None) -> Plan:
    longest = max(shape.tokens for shape in ask.shapes)
    model = ask.variants[0].model
    kept = best.one.variant.model
    return Plan(
        name=f"{kept.id.rpartition('/')[2].lower()}-{option.gpus}x-{option.gpu}",
        model=named if kept is model else kept.id,
        engine=engine,
        gpus=option.gpus,
        settings=option.settings,
        serve=option.serve,
        workload=workload or Workload(ask.shapes, requests_in_flight=ask.requests),
        require=Requirements(
            requests=ask.requests if len(ask.shapes) == 1 else None,
            tokens=longest if len(ask.shapes) == 1 else None,
            headroom=ask.headroom,
            max_model_len=longest,
            pool=SAFE if ask.safe else LIKELY,
        ),
        quality=ask.quality,
        price_per_gpu_hour=best.offer.price_per_gpu_hour,
    )
