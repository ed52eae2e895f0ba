"""``kvplan.plan``: names, paths and numbers become an `Ask`; the readers are called here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from kvplan.api import ModelLike, gpus_of, load_model, make_settings, parse_number
from kvplan.arguments import check_each, takes
from kvplan.dtypes import kv_dtype
from kvplan.engines import check_options, default_engine, own_settings
from kvplan.engines.base import Choice, request_tokens
from kvplan.errors import KvplanError
from kvplan.fitting import BUDGETS, choose
from kvplan.fitting.laws import check_engine, compiled_laws
from kvplan.gpu import Gpu
from kvplan.planning.ask import CONTEXT, COST, FEWEST, SEQS, TENSOR_WAYS, Ask, SpeedOf, Variant
from kvplan.planning.asked_law import AskedLaws
from kvplan.planning.context import longest, request_of
from kvplan.planning.planner import ALTERNATIVES, make_plan
from kvplan.planning.quality import weight_quality
from kvplan.planning.results import PlanResult
from kvplan.plans.fleet import Fleet, Offer
from kvplan.plans.plan import LIKELY, SAFE
from kvplan.plans.question import HOST_MEMORY
from kvplan.plans.serve import unsaid
from kvplan.plans.workload import Shape, Workload
from kvplan.settings import Settings
from kvplan.units import ceil_div, parse_bytes, parse_tokens

GpuLike = Gpu | str | Iterable["Gpu | str"]
Sizes = int | Sequence[int] | None
ALL = "all"
"""Every engine that divides a GPU's memory; one that does not take the question is left out with a word."""
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
    arrival=_SHARE, fleet=(Fleet,), objective=_TEXT, quality=_TEXT, max_gpus=_WHOLE,
    enable_expert_parallel=_FLAG, headroom=_SHARE, pool=_TEXT, tpot=_SHARE, ttft=_SHARE, top=_WHOLE,
    pareto=_FLAG, depth=_FLAG, levers=_FLAG, host_memory=_LENGTH, named=_TEXT,
)  # fmt: skip
def plan(
    model: ModelLike,
    *,
    engine: str | Sequence[str] | None = None,
    requests: int | None = None,
    tokens: int | str | None = None,
    workload: Workload | None = None,
    shared_prefix: int | str | None = None,
    samples: int | None = None,
    arrival: Fraction | float | str | None = None,
    gpu: GpuLike | None = None,
    fleet: Fleet | None = None,
    objective: str = FEWEST,
    quality: str = "safe",
    max_gpus: int | None = None,
    tp: Sizes = None,
    pp: Sizes = None,
    dp: Sizes = None,
    dcp: Sizes = None,
    enable_expert_parallel: bool | None = None,
    kv_cache_dtype: str | Sequence[str] | None = None,
    max_num_seqs: Sizes = None,
    max_model_len: int | str | Sequence[int] | None = None,
    headroom: Fraction | float | str = 0,
    pool: str = SAFE,
    tpot: Fraction | float | str | None = None,
    ttft: Fraction | float | str | None = None,
    speed: SpeedOf | None = None,
    top: int = ALTERNATIVES,
    pareto: bool = False,
    depth: bool = True,
    levers: bool = False,
    host_memory: int | str = 0,
    named: str | None = None,
    weights_from: str | None = None,
    **options: Any,
) -> PlanResult:
    """Which GPUs, how many, and with which flags serve a load: every candidate judged by the engine's rules.

    engine: ``vllm``, ``vllm@0.32``; several are planned for side by side, ``all`` are those that divide a
    GPU's memory. requests: at once, over the whole plan, of ``tokens`` each (default: all that the model
    takes); or a workload with a mix of shapes, and requests in flight, or arrivals a second with targets of
    TTFT and TPOT (in flight = arrivals · (TTFT + answer · TPOT), Little's law). shared_prefix: tokens that
    all prompts begin with, samples: answers to one prompt, arrival: requests a second. gpu: one or several
    (``h100``, ``8xh100``: as many are there); fleet: offers with prices; neither: every GPU that has a file.
    objective: fewest-gpus, cost, requests, context. quality: lossless, safe or aggressive formats.
    tp, pp, dp, dcp, kv_cache_dtype, max_num_seqs, max_model_len: a value or several, else the usual ones.
    pool: the figure that must do: ``safe`` (the low end of the budget's interval) or ``likely``. tpot, ttft:
    seconds at most. levers: work out the memory levers of the best; host_memory: bytes of a cache tier over
    all GPUs. weights_from: ``transformers`` counts the tensors (see `kvplan.load_model`).
    options: settings of `kvplan.size`, the same for all candidates. depth=False: without ways out, steps and
    sensitivity. Raises KvplanError.
    """
    loaded = load_model(model, weights_from=weights_from)
    choices = _choices(engine or default_engine([loaded]))
    for name in options:
        if name in _VARIED:
            raise KvplanError("bad-usage", f"plan() varies {name} itself")
    base = make_settings(**options)
    check_options((choice.engine for choice in choices), base)
    load = _load(loaded, base, workload, tokens)
    stated: dict[str, Any] = {
        "requests_in_flight": requests,
        "requests_per_second": None if arrival is None else parse_number("arrival", arrival),
        "ttft_seconds": _seconds("ttft", ttft),
        "tpot_seconds": _seconds("tpot", tpot),
        "shared_prefix_tokens": None if shared_prefix is None else parse_tokens(shared_prefix),
        "samples": samples,
    }
    load = replace(load, **{name: value for name, value in stated.items() if value is not None})
    if load.shared_prefix_tokens > max(shape.input_tokens for shape in load.shapes):
        raise KvplanError("bad-setting", "the shared prefix is longer than every prompt")
    count = load.requests_in_flight or _in_flight(load)
    if pool not in (LIKELY, SAFE):
        raise KvplanError("bad-setting", f"pool is {pool!r}", help="likely or safe")
    seqs = _sizes(max_num_seqs)
    offers = _offers(gpu, fleet)
    if objective == COST and all(offer.price_per_gpu_hour is None for offer in offers):
        raise KvplanError(
            "no-prices",
            "the objective cost needs prices, and none is known",
            help="--fleet fleet.yaml: GPUs with price_per_gpu_hour (kvplan schema fleet); kvplan keeps none",
        )

    host = parse_bytes(host_memory)
    kv_dtypes = (kv_cache_dtype,) if isinstance(kv_cache_dtype, str) else _words(kv_cache_dtype)

    def asked(choice: Choice) -> Ask:
        own, types, tier = _own_words(own_settings(choice.engine, base), choice, host)
        if missing := unsaid(own, choice.engine.name):
            raise KvplanError(
                "bad-setting",
                f"{choice.engine.name} has no flag for {', '.join(missing)}: no plan could say it",
                help="leave " + " and ".join("--" + name.replace("_", "-") for name in missing) + " out",
            )
        return Ask(
            variants=variants_of(loaded, own),
            choice=choice,
            offers=offers,
            shapes=load.shapes,
            lengths=_lengths(max_model_len, load.shapes),
            laws=compiled_laws(choice, own) or AskedLaws(),
            requests=count,
            base=own,
            seqs=SEQS if seqs is None else seqs,
            tp=_sizes(tp),
            pp=_sizes(pp),
            dp=_sizes(dp),
            dcp=_sizes(dcp),
            adp=_groups(own),
            expert_parallel=enable_expert_parallel,
            kv_dtypes=types or kv_dtypes,
            quality=quality,
            objective=objective,
            max_gpus=max_gpus,
            safe=pool == SAFE,
            headroom=parse_number("headroom", headroom),
            tpot=load.tpot_seconds,
            ttft=load.ttft_seconds,
            speed=speed or _speed(choice.engine.name),
            prefix=load.shared_prefix_tokens,
            samples=load.samples,
            host_memory=tier,
        )

    asks, left_out = _asks(asked, choices, forgiving=engine == ALL)
    warnings = (*(choice.warning for choice in choices if choice.warning), *left_out)
    stretch = tokens is None and workload is None
    own_length = objective == CONTEXT and max_model_len is None
    result = make_plan(
        asks,
        named=named or (str(model) if isinstance(model, str) else loaded.id),
        top=top,
        pareto=pareto,
        workload=load if load.requests_per_second else replace(load, ttft_seconds=None, tpot_seconds=None),
        currency="" if fleet is None else fleet.currency,
        depth=depth,
        warnings=warnings,
        each=partial(longest, stretch=stretch) if own_length else None,
    )
    load = replace(load, shapes=result.shapes)
    best = next((ask for ask in asks if result.options and ask.engine == result.options[0].engine), None)
    return _with_levers(best, result, load) if levers and best is not None else result


def _asks(
    asked: Callable[[Choice], Ask], choices: Sequence[Choice], *, forgiving: bool
) -> tuple[list[Ask], list[str]]:
    """(An ask for each engine, why others do not take the question where that is forgiven)."""
    asks: list[Ask] = []
    errors: list[tuple[Choice, KvplanError]] = []
    for choice in choices:
        try:
            asks.append(asked(choice))
        except KvplanError as error:  # noqa: PERF203
            errors.append((choice, error))
    if errors and not (asks and forgiving):
        raise errors[0][1]
    return asks, [f"{choice.engine.name} is left out: {error.message}" for choice, error in errors]


def _choices(engine: str | Sequence[str]) -> list[Choice]:
    """Each engine once. Raises KvplanError for one that does not divide a GPU's memory."""
    names = engine.split(",") if isinstance(engine, str) else check_each("engine", engine, _TEXT)
    specs = [name.strip() for name in names]
    if ALL in specs:
        specs = list(BUDGETS)
    choices = [choose(spec) for spec in dict.fromkeys(specs)]
    for choice in choices:
        check_engine(choice)
    return choices


def _with_levers(ask: Ask, result: PlanResult, load: Workload) -> PlanResult:
    from kvplan.plan_levers import levers_of

    best = result.options[0]
    model = next(
        one.model for one in ask.variants if (one.model.id, one.label) == (best.model_id, best.weights)
    )
    offer = next(one for one in ask.offers if (one.gpu.slug, one.where) == (best.gpu, best.where))
    found = levers_of(model, ask.choice, best, offer, load, ask.quality, ask.host_memory)
    return replace(result, levers=found)


def _groups(base: Settings) -> tuple[int, ...] | None:
    """Attention groups that the user's own options ask for."""
    own = dict(base.engine_options)
    if own.get("enable_dp_attention"):
        raise KvplanError(
            "bad-usage", "plan() varies dp itself: enable_dp_attention is not taken", help="--attn-dp-size 8"
        )
    if isinstance(groups := own.get("attn_dp_size"), int):
        return (groups,)
    if (asked := own.get("enable_attention_dp")) is not None:
        return (1,) if not asked else TENSOR_WAYS
    return None


_CACHE_TYPES = ("cache_type_k", "cache_type_v")


def _own_words(
    base: Settings, choice: Choice, host_memory: int
) -> tuple[Settings, tuple[str, ...] | None, int]:
    """(settings, the one cache format that is tried, bytes of a tier in host memory) in llama.cpp's words.

    Both types where -ctk or -ctv was given, of which the smaller counts as the format; host memory for the
    cache itself. As they are for an engine without such options.
    """
    own = dict(base.engine_options)
    types = None
    if own.keys() & set(_CACHE_TYPES):
        own |= {name: str(own.get(name) or "f16") for name in _CACHE_TYPES}
        words = [str(own[name]) for name in _CACHE_TYPES]
        types = (min(words, key=lambda word: kv_dtype(word).key_packing(32).bytes_for(32)),)
    if host_memory and any(option.name == HOST_MEMORY for option in choice.engine.options):
        own[HOST_MEMORY], host_memory = host_memory, 0
    return replace(base, engine_options=tuple(sorted(own.items()))), types, host_memory


def _speed(engine: str) -> SpeedOf:
    from kvplan.speeds import speed_of

    return speed_of(engine)


def variants_of(model: Any, base: Settings) -> tuple[Variant, ...]:
    """The weight formats that exist, with what stands behind each; what the user states is the only one."""
    from kvplan.architectures.config.activation_shape import num_experts
    from kvplan.readers.weight_formats import weight_formats

    formats = weight_formats(model)
    if base.weights is not None or base.quantization is not None:
        formats = formats[:1]
    return tuple(
        Variant(
            one.model,
            "stated" if base.weights is not None else base.quantization or one.label,
            weight_quality(one.bits, published=one.published),
            num_experts(one.model),
        )
        for one in formats
    )


def _load(model: Any, base: Settings, workload: Workload | None, tokens: int | str | None) -> Workload:
    if workload is not None:
        if tokens is not None:
            raise KvplanError("bad-usage", "give tokens or a workload, not both")
        return workload
    length = request_tokens(model, base) if tokens is None else parse_tokens(tokens)
    if length < 1:
        raise KvplanError("bad-setting", "a request has at least one token", help="--tokens 4096")
    return Workload((request_of(length, base.answer_tokens),))


def _in_flight(workload: Workload) -> int:
    """Little's law: arrivals a second · (TTFT + answer tokens · TPOT), rounded up; without arrivals 1."""
    rate, ttft, tpot = workload.requests_per_second, workload.ttft_seconds, workload.tpot_seconds
    if rate is None:
        return 1
    if ttft is None or tpot is None:
        raise KvplanError(
            "bad-usage",
            "arrivals a second say how many requests run only together with targets of TTFT and TPOT",
            help=("--ttft 2s --tpot 50ms", "--requests 32: how many run at once"),
        )
    stay = ttft + workload.mean(name="output_tokens") * tpot
    amount = rate * stay
    return max(1, ceil_div(amount.numerator, amount.denominator))


def _offers(gpu: GpuLike | None, fleet: Fleet | None) -> tuple[Offer, ...]:
    named = [gpu] if isinstance(gpu, (Gpu, str)) else check_each("gpu", gpu or (), (Gpu, str))
    asked = [gpus_of(one) for one in named]
    if fleet is not None:
        slugs = {one.slug for one, _ in asked}
        offers = tuple(offer for offer in fleet.offers if not slugs or offer.gpu.slug in slugs)
        if not offers:
            known = ", ".join(offer.gpu.slug for offer in fleet.offers)
            raise KvplanError(
                "unknown-gpu", "the fleet offers none of the GPUs asked for", help=f"it offers {known}"
            )
        return offers
    if asked:
        counts = [count if _is_counted(one) else None for one, (_, count) in zip(named, asked, strict=True)]
        return tuple(Offer(found, available=count) for (found, _), count in zip(asked, counts, strict=True))
    from kvplan.readers.gpus.find import list_gpus

    return tuple(Offer(one) for one in list_gpus() if not one.is_mig_slice)


def _is_counted(one: Gpu | str) -> bool:
    """Whether a text says how many there are: ``8xh100``, ``1xh100``, not ``h100`` nor ``mi300x``."""
    from kvplan.readers.gpus.find import parse_gpu_count

    return isinstance(one, str) and parse_gpu_count(one)[0] != one.strip()


def _lengths(given: int | str | Sequence[int] | None, shapes: tuple[Shape, ...]) -> tuple[int, ...]:
    if given is None:
        return (max(shape.tokens for shape in shapes),)
    many = [given] if isinstance(given, (int, str)) else check_each("max_model_len", given, _LENGTH)
    return tuple(sorted({parse_tokens(one) for one in many}))


def _sizes(given: Sizes) -> tuple[int, ...] | None:
    if given is None:
        return None
    many = (given,) if isinstance(given, int) else tuple(check_each("a parallel size", given, _WHOLE))
    if not many or any(isinstance(one, bool) or one < 1 for one in many):
        raise KvplanError("bad-setting", f"{given!r}: whole numbers of at least 1")
    return many


def _words(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(check_each("kv_cache_dtype", given, _TEXT))


def _seconds(name: str, given: Any) -> Fraction | None:
    return None if given is None else parse_number(name, given)
