"""From an ask to a plan, with everything that a reader needs to believe it. Pure."""

from __future__ import annotations

from dataclasses import replace

from kvplan.planning.ask import CONTEXT, Ask
from kvplan.planning.found import Found, Searched
from kvplan.planning.front import front, measures
from kvplan.planning.options import holds, host_tier, option_of
from kvplan.planning.reasons import reasons_of, sensitivity_of, steps_of, ways_out
from kvplan.planning.results import Option, PlanResult
from kvplan.planning.search import search
from kvplan.plans.plan import LIKELY, SAFE, Plan, Requirements
from kvplan.plans.workload import Workload
from kvplan.results import EngineRef, ModelRef

ALTERNATIVES = 5


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
    shown = tuple(option_of(one.ask, one.found) for one in front(ask)) if pareto else ()
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
        pareto=shown,
        pareto_by=measures(ask) if pareto else (),
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
        shown: dict[object, Found] = {}
        for found in searched.found:
            one = found.one
            shown.setdefault((one.variant.label, one.kv, one.layout, found.gpus, found.requests), found)
        return list(shown.values())[:top]
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


def _plan(ask: Ask, best: Found, option: Option, named: str, engine: str, workload: Workload | None) -> Plan:
    longest = max(shape.tokens for shape in ask.shapes)
    model = ask.variants[0].model
    kept = best.one.variant.model
    plain = len(ask.shapes) == 1 and not ask.shares  # else the workload says what is required
    own = Workload(
        ask.shapes, requests_in_flight=ask.requests, shared_prefix_tokens=ask.prefix, samples=ask.samples
    )
    return Plan(
        name=f"{kept.id.rpartition('/')[2].lower()}-{option.gpus}x-{option.gpu}",
        model=named if kept is model else kept.id,
        engine=engine,
        gpus=option.gpus,
        settings=option.settings,
        serve=option.serve,
        workload=own if workload is None else replace(workload, requests_in_flight=ask.requests),
        require=Requirements(
            requests=ask.requests if plain else None,
            tokens=longest if plain else None,
            headroom=ask.headroom,
            max_model_len=best.max_model_len if ask.objective == CONTEXT else longest,
            host_memory_bytes=host_tier(ask, best)[1],
            pool=SAFE if ask.safe else LIKELY,
        ),
        quality=ask.quality,
        price_per_gpu_hour=best.offer.price_per_gpu_hour,
    )
