"""``kvplan.plan``: names, paths, numbers and plans become an `Ask`; the readers are called here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvplan.acceptance import acceptance_of
from kvplan.api import (
    ModelLike,
    changed_settings,
    in_our_words,
    load_model,
    make_settings,
    parse_number,
)
from kvplan.api.arguments import takes
from kvplan.api.estimates import speed_of
from kvplan.api.load import engine_for, usual_engine
from kvplan.api.planning.again import Extra, Given, again_of
from kvplan.api.planning.inputs import (
    ALL,
    GpuLike,
    Sizes,
    asks_of,
    choices_of,
    elsewhere,
    groups_of,
    lengths_of,
    load_of,
    named_offers,
    own_words,
    rate_of,
    seconds_of,
    sizes_of,
    usual_offers,
    variants_of,
    words_of,
)
from kvplan.api.planning.levers import answers_of, chosen, levers_of, with_pools
from kvplan.engines import check_options, own_settings
from kvplan.engines.base import Choice, parse_version
from kvplan.engines.budget.law import check_engine, compiled_laws
from kvplan.engines.doors import door_of
from kvplan.engines.traits import builds_of, traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.planning import from_plan
from kvplan.planning.ask import CONTEXT, COST, FEWEST, SEQS, Ask
from kvplan.planning.asked_law import AskedCapacityModels
from kvplan.planning.context import longest
from kvplan.planning.hosted import placed
from kvplan.planning.planner import ALTERNATIVES, make_plan
from kvplan.planning.results import PlanResult
from kvplan.plans.fleet import Fleet, Offer, Prices
from kvplan.plans.plan import LIKELY, SAFE, USUAL_GOODPUT, Plan
from kvplan.plans.serve import unsaid
from kvplan.plans.workload import LEAST_CV, MOST_CV, Workload
from kvplan.record import replace
from kvplan.settings import MEDIA, Settings
from kvplan.units import parse_bytes, parse_tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvplan.api.keywords import PlanOptions

__all__ = ["plan", "variants_of"]
_VARIED = (
    "tensor_parallel_size", "tp", "pipeline_parallel_size", "pp", "data_parallel_size", "dp", "gpu",
    "decode_context_parallel_size", "dcp", "kv_cache_dtype", "kv_dtype", "max_num_seqs", "max_model_len",
    "tokens", "requests", "enable_expert_parallel",
)  # fmt: skip


_WHOLE, _TEXT, _FLAG = (int,), (str,), (bool,)
_SHARE = (Fraction, int, float, str)
_LENGTH = (int, str)


@takes(
    requests=_WHOLE, tokens=_LENGTH, workload=(Workload,), shared_prefix=_LENGTH, samples=_WHOLE,
    arrival=_SHARE, fleet=(Fleet, str, Path), objective=_TEXT, quality=_TEXT, max_gpus=_WHOLE,
    enable_expert_parallel=_FLAG, headroom=_SHARE, pool=_TEXT, tpot=_SHARE, ttft=_SHARE, goodput=_SHARE,
    burstiness=_SHARE, acceptance=_SHARE, trace=(str, Path), top=_WHOLE,
    pareto=_FLAG, depth=_FLAG, levers=_FLAG, disaggregated=_FLAG, host_memory=_LENGTH,
    prices=(Prices, str, Path),
)  # fmt: skip
def plan(
    model: ModelLike | Plan,
    *,
    engine: str | Sequence[str] | None = None,
    requests: int | None = None,
    tokens: int | str | None = None,
    workload: Workload | None = None,
    shared_prefix: int | str | None = None,
    samples: int | None = None,
    arrival: Fraction | float | str | None = None,
    gpu: GpuLike | None = None,
    fleet: Fleet | str | Path | None = None,
    objective: str = FEWEST,
    quality: str | None = None,
    max_gpus: int | None = None,
    tp: Sizes = None,
    pp: Sizes = None,
    dp: Sizes = None,
    dcp: Sizes = None,
    enable_expert_parallel: bool | None = None,
    kv_cache_dtype: str | Sequence[str] | None = None,
    max_num_seqs: Sizes = None,
    max_model_len: int | str | Sequence[int] | None = None,
    headroom: Fraction | float | str | None = None,
    pool: str | None = None,
    tpot: Fraction | float | str | None = None,
    ttft: Fraction | float | str | None = None,
    goodput: Fraction | float | str | None = None,
    burstiness: Fraction | float | str | None = None,
    acceptance: float | str | None = None,
    trace: str | Path | None = None,
    top: int = ALTERNATIVES,
    pareto: bool = False,
    depth: bool = True,
    levers: bool = False,
    disaggregated: bool = False,
    host_memory: int | str | None = None,
    prices: Prices | str | Path | None = None,
    weights_from: str | None = None,
    **options: Unpack[PlanOptions],
) -> PlanResult:
    """Which GPUs, how many, and with which flags serve a load: every candidate judged by the engine's rules.

    engine: ``vllm``, ``vllm@0.32``; several are planned for side by side, ``all`` are those that divide a
    GPU's memory. requests: at once, over the whole plan, of ``tokens`` each (default: max_model_len,
    else all that the model takes); or a workload with a mix of shapes, and requests in flight, or arrivals a
    second with targets of TTFT, TPOT or both: these are simulated (`kvplan.api.planning.rate`).
    shared_prefix: tokens that all prompts begin with, samples: answers to one prompt, arrival: requests a
    second. gpu: one or several (``h100``, ``8xh100``: as many are there); fleet: offers with prices, prices:
    what those cost that have none there, each a file too;
    neither: GPUs of data centres and workstations that the engine names and kvplan times.
    objective: fewest-gpus, cost, requests, context. quality: lossless, safe (default) or aggressive formats.
    tp, pp, dp, dcp, kv_cache_dtype, max_num_seqs, max_model_len: a value or several, else the usual ones.
    pool: the figure that must do: ``safe`` (the low end of the budget's interval; the default but for
    arrivals with targets, where it also means slow steps) or ``likely``. tpot, ttft: seconds at most; of
    arrivals for the share ``goodput`` of them (0.99). burstiness: the CV of the gaps between arrivals (1:
    Poisson). acceptance: how many drafted tokens are right (`kvplan.acceptance`). trace: where the
    workload's trace lies. levers: work out the memory levers of the best; disaggregated: prefill and
    decode engines, of arrivals with targets (`kvplan.planning.pools`); host_memory: bytes of a
    cache tier over all GPUs. weights_from: ``transformers`` counts the tensors (`kvplan.load_model`).
    options: settings of `kvplan.size`, the same for all candidates. depth=False: without fixes, steps and
    sensitivity.

    A plan (`load_plans`) is planned anew: its checkpoint, engine, load, requirements, flags and kind of GPU
    stand, the number of GPUs, the layout and max_num_seqs are searched (`kvplan.planning.from_plan`); what is
    given here counts first, and ``quality`` also lets other checkpoints in. Raises KvplanError.
    """
    given = Given(
        engine, requests, tokens, workload, shared_prefix, samples, arrival, gpu, _fleet(fleet),
        objective, quality, max_gpus, tp, pp, dp, dcp, enable_expert_parallel, kv_cache_dtype, max_num_seqs,
        max_model_len, headroom, pool, tpot, ttft, goodput, burstiness, acceptance, trace, top, pareto,
        depth, levers, disaggregated, host_memory, None, _prices(prices),
    )  # fmt: skip
    loaded = load_model(model.model if isinstance(model, Plan) else model, weights_from=weights_from)
    usual = model.engine if isinstance(model, Plan) else engine_for([loaded], options)
    named_engine = given.engine or usual
    options = in_our_words(options, [choice.engine.name for choice in choices_of(named_engine)])  # type: ignore[assignment]
    for name in options:
        if name in _VARIED:
            raise KvplanError("bad-usage", f"a plan varies {name} itself")
    if not isinstance(model, Plan):
        if any(name in options for name in MEDIA):
            given, options = _with_media(loaded, given, options)
        name = model if isinstance(model, str) else loaded.id
        return _answer(loaded, given._replace(named=name), make_settings(**options), Extra())
    if carried := [name for name in MEDIA if name in options]:
        raise _no_media(carried[0])
    again, extra = again_of(model, given)
    base = changed_settings(from_plan.base_of(model), options)
    result = _answer(loaded, again._replace(named=model.model), base, extra, typed=options)
    if result.plan is None:
        return result
    best = from_plan.successor(
        model, result.plan, replaced=tokens is not None or workload is not None, requests=requests,
        context=objective == CONTEXT,
    )  # fmt: skip
    require = best.require
    if require.hit_rate is not None or require.preemptions is not None:
        unsought = "what it requires of its cache is not searched for: kvplan check simulates what is found"
        result = replace(result, warnings=(*result.warnings, unsought))
    return replace(result, plan=best)


def _fleet(fleet: Fleet | str | Path | None) -> Fleet | None:
    if fleet is None or isinstance(fleet, Fleet):
        return fleet
    from kvplan.files.plans.fleet import read_fleet

    return read_fleet(fleet)


def _prices(prices: Prices | str | Path | None) -> Prices | None:
    if prices is None or isinstance(prices, Prices):
        return prices
    from kvplan.files.plans.prices import read_prices

    return read_prices(prices)


def _with_media(model: Model, given: Given, options: Mapping[str, object]) -> tuple[Given, PlanOptions]:
    """Requests as long as with what they carry beside their text, as `kvplan.size` counts it."""
    media = {name: value for name, value in options.items() if name in MEDIA}
    others: dict[str, object] = {name: value for name, value in options.items() if name not in MEDIA}
    if given.workload is not None:
        raise _no_media(next(iter(media)))
    from kvplan.architectures.media.request import with_media

    asked = with_media(model, make_settings(**{**others, "tokens": given.tokens}), media)
    others["encoder_tokens"] = asked.encoder_tokens
    return given._replace(tokens=asked.tokens), cast("PlanOptions", others)


def _no_media(name: str) -> KvplanError:
    return KvplanError(
        "bad-usage",
        f"{name} belongs to a model and tokens: the lengths of a workload have all that a request carries",
    )


class _Question:
    """The keywords of a plan, read once, and what each engine is asked with them."""

    def __init__(
        self, model: Model, given: Given, base: Settings, extra: Extra, typed: Mapping[str, Any] | None
    ) -> None:
        """typed: of the settings those that were given beside a plan; None: all were."""
        self.model, self.given, self.base, self.extra, self.typed = model, given, base, extra, typed
        named = named_offers(given.gpu, given.fleet)
        kinds = [offer.gpu for offer in named]
        self.choices = choices_of(given.engine or usual_engine([model], base.quantization, kinds))
        usual = named or usual_offers(choice.engine.name for choice in self.choices)
        self.offers = _priced(extra.priced(usual), given.prices)
        asked_for = base if typed is None else make_settings(**typed)
        check_options((choice.engine for choice in self.choices), asked_for)
        self.load = load = _load(model, base, given)
        counted = given.disaggregated or given.requests is not None
        self.paced = not counted and rate_of(load) is not None
        self.rate = load.requests_per_second if self.paced or not load.requests_in_flight else None
        _check_acceptance(given, base, simulated=self.paced or given.disaggregated)
        if given.disaggregated:
            self.requests = answers_of(load, given)
        else:
            self.requests = 1 if self.paced else load.requests_in_flight or 1
        self.pool = _pool(given, LIKELY if self.paced or given.disaggregated else SAFE)
        self.goodput = _goodput(given, extra, simulated=self.paced or given.disaggregated)
        _check_prices(given, self.offers)
        self.host_memory = parse_bytes(given.host_memory or 0)
        self.seqs = sizes_of(given.max_num_seqs)
        self.left_out: dict[str, None] = {}

    def made(self) -> Callable[..., PlanResult]:
        """`make_plan` with what every way of planning says alike: names, rows, prices."""
        given = self.given
        return partial(
            make_plan, named=given.named or self.model.id, top=given.top, pareto=given.pareto,
            workload=self.load, currency=_currency(given),
            prices="" if given.prices is None else given.prices.words(),
        )  # fmt: skip

    def ask_of(self, choice: Choice) -> Ask:
        """The question in the engine's words. Raises KvplanError where it has none for it."""
        given, load, extra = self.given, self.load, self.extra
        settings, notes = extra.settings(choice, self.base, self.typed)
        self.left_out.update(dict.fromkeys(notes))
        own, types, tier = own_words(own_settings(choice.engine, settings), choice, self.host_memory)
        check_engine(choice, own)
        _check_flags(choice, own)
        beyond = traits_of(choice.engine.name).beyond_prompt
        least = max(load.longest, extra.least, *(shape.input_tokens + beyond for shape in load.shapes))
        return Ask(
            variants=variants_of(
                self.model, own, own_only=extra.own_only, builds=_builds(choice, self.model)
            ),
            choice=choice,
            offers=self.offers,
            shapes=load.shapes,
            lengths=(least,) if given.max_model_len is None else lengths_of(given.max_model_len),
            laws=compiled_laws(choice, own) or AskedCapacityModels(),
            requests=self.requests,
            rate=self.rate,
            paced=self.paced,
            base=own,
            seqs=SEQS if self.seqs is None else self.seqs,
            tp=sizes_of(given.tp),
            pp=sizes_of(given.pp),
            dp=sizes_of(given.dp),
            dcp=sizes_of(given.dcp),
            adp=groups_of(own),
            expert_parallel=given.enable_expert_parallel,
            kv_dtypes=types or words_of(given.kv_cache_dtype),
            quality=given.quality or "safe",
            objective=given.objective,
            max_gpus=given.max_gpus,
            safe=self.pool == SAFE,
            headroom=parse_number("headroom", given.headroom or 0),
            tpot=load.tpot_seconds,
            ttft=None if given.disaggregated else load.ttft_seconds,
            speed=speed_of(choice.engine.name, parse_version(choice.version)),
            prefix=load.shared_prefix_tokens,
            samples=load.samples,
            host_memory=tier,
            also=extra.also,
            kept=extra.kept,
            max_cost=extra.max_cost,
        )


def _goodput(given: Given, extra: Extra, *, simulated: bool) -> Fraction:
    """The share of requests that must keep their times: as given, else as the plan requires."""
    if given.goodput is None:
        return USUAL_GOODPUT if extra.plan is None else from_plan.goodput_of(extra.plan)
    if not simulated:
        raise KvplanError(
            "bad-usage", "goodput is the share of requests that come at a rate and keep their times",
            help="--arrival 3/s --ttft 2s --tpot 50ms --goodput 99%",
        )  # fmt: skip
    share = parse_number("goodput", given.goodput)
    if not 0 < share < 1:
        raise KvplanError(
            "bad-setting", f"goodput is {float(share):g}: a share above 0 and below 1", help="--goodput 99%"
        )
    return share


def _pool(given: Given, usual: str) -> str:
    pool = given.pool or usual
    if pool not in (LIKELY, SAFE):
        raise KvplanError("bad-setting", f"pool is {pool!r}", help="likely or safe")
    return pool


def _check_prices(given: Given, offers: Sequence[Offer]) -> None:
    if given.objective == COST and all(offer.price_per_gpu_hour is None for offer in offers):
        raise KvplanError(
            "no-prices",
            "the objective cost needs prices, and none is known",
            help="--prices prices.yaml: what GPUs cost an hour (kvplan schema prices); kvplan has none",
        )


def _priced(offers: tuple[Offer, ...], prices: Prices | None) -> tuple[Offer, ...]:
    return offers if prices is None else prices.of(offers)


def _currency(given: Given) -> str:
    """The fleet's, else that of the prices."""
    own = "" if given.fleet is None else given.fleet.currency
    return own or ("" if given.prices is None else given.prices.currency)


def _check_flags(choice: Choice, own: Settings) -> None:
    if missing := unsaid(own, choice.engine.name):
        raise KvplanError(
            "bad-setting",
            f"{choice.engine.name} has no flag for {', '.join(missing)}: no plan could say it",
            help="leave " + " and ".join("--" + name.replace("_", "-") for name in missing) + " out",
        )


def _answer(
    model: Model, given: Given, base: Settings, extra: Extra, typed: Mapping[str, object] | None = None
) -> PlanResult:
    """typed: of the settings those that were given beside a plan; None: all were."""
    question = _Question(model, given, base, extra, typed)
    asks, unable = asks_of(question.ask_of, question.choices, forgiving=given.engine == ALL)
    warned = (choice.warning for choice in question.choices if choice.warning)
    said = (*warned, *unable, *question.left_out)
    asks, result = _rated(question, asks, said) or _planned(question, asks, said)
    load = replace(question.load, shapes=result.shapes)
    best = next((ask for ask in asks if result.options and ask.engine == result.options[0].engine), None)
    if best is None:
        others = elsewhere(result, question.ask_of, question.choices) if given.depth else ()
        return replace(result, ways_out=(*result.ways_out, *others))
    result = replace(result, start=_started(best.choice, given.named or model.id, result))
    if given.disaggregated:
        result = with_pools(best, result, load, question.goodput, given.trace)
    return _with_levers(best, result, load) if given.levers and result.options else result


_NOT_SIMULATED = "not simulated, estimated for a steady load: {}"


def _rated(
    question: _Question, asks: list[Ask], said: tuple[str, ...]
) -> tuple[list[Ask], PlanResult] | None:
    """The plan for a rate with times to keep, simulated; None where no rate is said, or nothing of it is
    simulated: the reason is then noted for the estimate's plan."""
    given, load = question.given, question.load
    if not question.paced:
        return None
    from kvplan.api.planning import rate

    kinds = [
        rate.simulated_ask(ask, question.goodput, load.acceptance) for ask in asks if rate.is_simulated(ask)
    ]
    if not kinds:
        question.left_out[_NOT_SIMULATED.format("the engine's scheduler is not known")] = None
        return None
    try:
        arrivals = rate.arrivals_of(load, given.trace)
    except KvplanError as error:
        if error.code != "not-simulated":
            raise
        question.left_out[_NOT_SIMULATED.format(error.message)] = None
        return None
    sizer = rate.Sizer(arrivals, load, given.named or question.model.id)
    result = question.made()(kinds, depth=False, warnings=said, sized=sizer)
    if result.options:
        found, fixes = sizer.figures_of(result.options[0])
        return kinds, replace(result, simulated=found, ways_out=fixes)
    if sizer.refusals:
        question.left_out[_NOT_SIMULATED.format(sizer.refusals[0])] = None
        return None
    return kinds, result


def _planned(question: _Question, asks: list[Ask], said: tuple[str, ...]) -> tuple[list[Ask], PlanResult]:
    """The plan, with layers left in host memory where nothing else serves the load or fewer GPUs then do."""
    said = tuple(dict.fromkeys((*said, *question.left_out)))
    given = question.given
    stretch = given.tokens is None and given.workload is None
    own_length = given.objective == CONTEXT and given.max_model_len is None
    planned = partial(question.made(), each=partial(longest, stretch=stretch) if own_length else None)
    result = planned(asks, depth=given.depth, warnings=said)
    whole = result.options[0].gpus if result.options else None
    for hosted, notes in placed(asks, whole) if whole is None or given.objective == FEWEST else ():
        found = planned([one.ask for one in hosted], depth=False, warnings=(*said, *notes))
        if found.plan is not None or whole is None:
            return [one.ask for one in hosted], found
    return asks, result


def _builds(choice: Choice, model: Model) -> tuple[str, ...]:
    """The formats that the engine makes of a model; of one published in MXFP4 what the program has of it."""
    if choice.door is not None and model.quantization == "mxfp4":
        return (door_of(choice.door).build(model),)
    return builds_of(choice.engine.name, model)


def _started(choice: Choice, name: str, result: PlanResult) -> tuple[str, ...]:
    """The commands of the program that was asked for; its own name of the model where it has one."""
    command = None if choice.door is None else door_of(choice.door).command
    if command is None:
        return ()
    from kvplan.files.cards.ollama_names import run_name

    serve = result.options[0].serve
    return command(run_name(name, result.options[0].model, str(serve.get("quantization") or "")), serve)


def _load(model: Model, base: Settings, given: Given) -> Workload:
    """The load with what was said beside it."""
    if given.max_model_len is not None:  # nobody is served more than the shortest that is tried
        base = replace(base, max_model_len=min(lengths_of(given.max_model_len), default=None))
    load = load_of(model, base, given.workload, given.tokens)
    stated: dict[str, Any] = {
        "requests_in_flight": given.requests,
        "requests_per_second": None if given.arrival is None else parse_number("arrival", given.arrival),
        "ttft_seconds": seconds_of("ttft", given.ttft),
        "tpot_seconds": seconds_of("tpot", given.tpot),
        "burstiness": None if given.burstiness is None else _burstiness(given.burstiness, load),
        "shared_prefix_tokens": None if given.shared_prefix is None else parse_tokens(given.shared_prefix),
        "samples": given.samples,
        "acceptance": None if given.acceptance is None else str(given.acceptance),
    }
    load = replace(load, **{name: value for name, value in stated.items() if value is not None})
    if load.shared_prefix_tokens > max(shape.input_tokens for shape in load.shapes):
        raise KvplanError("bad-setting", "the shared prefix is longer than every prompt")
    return load


def _check_acceptance(given: Given, base: Settings, *, simulated: bool) -> None:
    """Raise KvplanError where an acceptance is none of the drafted tokens, or nothing would read it."""
    if given.acceptance is None:
        return
    if not simulated:
        raise KvplanError(
            "bad-usage", "an acceptance of drafted tokens counts where arrivals are simulated",
            help="--arrival 3/s --ttft 2s --tpot 50ms, without --requests; or leave out --acceptance",
        )  # fmt: skip
    if base.num_speculative_tokens:
        acceptance_of(str(given.acceptance), base.num_speculative_tokens)


def _burstiness(given: object, load: Workload) -> Fraction:
    if load.trace is not None:
        raise KvplanError("bad-usage", "burstiness is of arrivals that are drawn: a trace has its own times")
    cv = parse_number("burstiness", given)
    if not LEAST_CV <= cv <= MOST_CV:
        raise KvplanError(
            "bad-setting", f"burstiness is {float(cv):g}: {float(LEAST_CV):g} to {MOST_CV} can be drawn",
            help=("--burstiness 1 is Poisson", "--burstiness 2.5 is bursty"),
        )  # fmt: skip
    return cv


def _with_levers(ask: Ask, result: PlanResult, load: Workload) -> PlanResult:
    best = result.options[0]
    model, offer = chosen(ask, best)
    found = levers_of(model, ask.choice, best, offer, load, ask.quality, ask.host_memory)
    return replace(result, levers=found)
