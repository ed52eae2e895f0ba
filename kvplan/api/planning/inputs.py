"""Names, numbers and lists that `kvplan.plan` takes, as the planner's own values; readers are called here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from kvplan.api import gpus_of, parse_number
from kvplan.api.arguments import check_each
from kvplan.dtypes import kv_dtype
from kvplan.engines.base import Choice, request_tokens
from kvplan.engines.budget import BUDGETS, choose, divides
from kvplan.engines.budget.law import check_engine
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.ask import TENSOR_WAYS, Ask, Variant
from kvplan.planning.context import request_of
from kvplan.planning.quality import BUILDS, weight_quality
from kvplan.planning.reasons import other_engines
from kvplan.planning.results import PlanResult, SuggestedFix
from kvplan.plans.fleet import Fleet, Offer
from kvplan.plans.question import HOST_MEMORY
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.units import parse_tokens

GpuLike = Gpu | str | Iterable["Gpu | str"]
Sizes = int | str | Sequence[int] | None
ALL = "all"
"""Every engine that divides a GPU's memory; one that does not take the question is left out with a word."""
_TEXT, _WHOLE, _LENGTH = (str,), (int,), (int, str)


def listed(text: str) -> list[str]:
    """The words of a comma list, as the command line takes them."""
    return [piece.strip() for piece in text.split(",")]


def choices_of(engine: str | Sequence[str]) -> list[Choice]:
    """Each engine once. Raises KvplanError for one that does not divide a GPU's memory."""
    names = engine.split(",") if isinstance(engine, str) else check_each("engine", engine, _TEXT)
    specs = [name.strip() for name in names]
    if ALL in specs:
        specs = [name for name in BUDGETS if divides(name)]
    choices = [choose(spec) for spec in dict.fromkeys(specs)]
    for choice in choices:
        check_engine(choice)
    return choices


def asks_of(
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


def groups_of(base: Settings) -> tuple[int, ...] | None:
    """Attention groups that the user's own options ask for."""
    own = base.own
    if own.get("enable_dp_attention"):
        raise KvplanError(
            "bad-usage", "a plan varies dp itself: enable_dp_attention is not taken", help="--attn-dp-size 8"
        )
    if isinstance(groups := own.get("attn_dp_size"), int):
        return (groups,)
    if (asked := own.get("enable_attention_dp")) is not None:
        return (1,) if not asked else TENSOR_WAYS
    return None


_CACHE_TYPES = ("cache_type_k", "cache_type_v")


def own_words(
    base: Settings, choice: Choice, host_memory: int
) -> tuple[Settings, tuple[str, ...] | None, int]:
    """(settings, the one cache format that is tried, bytes of a tier in host memory) in llama.cpp's words.

    Both types where -ctk or -ctv was given, of which the smaller counts as the format; host memory for the
    cache itself. As they are for an engine without such options.
    """
    own = base.own
    types = None
    if own.keys() & set(_CACHE_TYPES):
        own |= {name: str(own.get(name) or "f16") for name in _CACHE_TYPES}
        words = [str(own[name]) for name in _CACHE_TYPES]
        types = (min(words, key=lambda word: kv_dtype(word).key_packing(32).bytes_for(32)),)
    if host_memory and any(option.name == HOST_MEMORY for option in choice.engine.options):
        own, host_memory = own | {HOST_MEMORY: host_memory}, 0
    return replace(base, own=own), types, host_memory


def variants_of(
    model: Model, base: Settings, *, own_only: bool = False, builds: Sequence[str] = ()
) -> tuple[Variant, ...]:
    """The weight formats that exist, with what stands behind each; what the user states is the only one.

    own_only: no other checkpoint than the model itself. builds: of a model that is no file, those that the
    engine makes of it, in the place of other checkpoints.
    """
    from kvplan.architectures.config.activation_shape import num_experts
    from kvplan.files.weight_formats import weight_formats

    if builds and not model.is_gguf and base.weights is None and base.quantization is None:
        many, named = num_experts(model), model.gguf_mixture
        published = weight_quality(16, published=True)
        if named is not None:
            return (Variant(model, _label(model, named), published, many, named),)
        if model.quantization == "mxfp4" and len(builds) == 1:
            return (Variant(model, _label(model, builds[0]), published, many, builds[0]),)
        whole = ("mxfp4_moe",) if model.quantization == "mxfp4" else builds
        return tuple(Variant(model, one, BUILDS[one], many, one) for one in whole)
    formats = weight_formats(model)
    if own_only or base.weights is not None or base.quantization is not None:
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


def _label(model: Model, build: str) -> str:
    """The name of the weights: a 16-bit file keeps experts that were published in MXFP4."""
    return "mxfp4" if model.quantization == "mxfp4" and build in ("bf16", "f16") else build


def load_of(model: Model, base: Settings, workload: Workload | None, tokens: int | str | None) -> Workload:
    """The requests: a workload, or all of so many tokens; where neither is said, as long as is served."""
    if workload is not None:
        if tokens is not None:
            raise KvplanError("bad-usage", "give tokens or a workload, not both")
        return workload
    length = request_tokens(model, base) if tokens is None else parse_tokens(tokens)
    if length < 1:
        raise KvplanError("bad-setting", "a request has at least one token", help="--tokens 4096")
    return Workload((request_of(length, base.answer_tokens),))


def rate_of(workload: Workload) -> Fraction | None:
    """Requests a second, where these say how many run at once; None where a number does, or one by itself
    is planned for. Raises KvplanError(bad-usage)."""
    rate = workload.requests_per_second
    if rate is None or (workload.requests_in_flight is not None and not workload.has_targets):
        return None
    if not workload.has_targets:
        raise KvplanError(
            "bad-usage",
            "arrivals a second say how many requests run only together with a target of TTFT or TPOT",
            help=("--ttft 2s --tpot 50ms", "--requests 32: how many run at once"),
        )
    return rate


def named_offers(gpu: GpuLike | None, fleet: Fleet | None) -> tuple[Offer, ...]:
    """GPUs to choose from: those named, a fleet or a part of it; none where neither is there."""
    if isinstance(gpu, str):
        gpu = listed(gpu)
    named = [gpu] if isinstance(gpu, Gpu) else check_each("gpu", gpu or (), (Gpu, str))
    asked = [gpus_of(one) for one in named]
    if any(found.row for found, _ in asked):
        raise KvplanError(
            "unequal-gpus",
            "a plan has GPUs of one kind",
            help="several kinds are sized: kvplan size MODEL --engine llamacpp --gpu rtx-3090+rtx-3060",
        )
    if fleet is not None:
        slugs = {one.slug for one, _ in asked}
        offers = tuple(offer for offer in fleet.offers if not slugs or offer.gpu.slug in slugs)
        if not offers:
            known = ", ".join(offer.gpu.slug for offer in fleet.offers)
            raise KvplanError(
                "unknown-gpu", "the fleet offers none of the GPUs asked for", help=f"it offers {known}"
            )
        return offers
    counts = [count if _is_counted(one) else None for one, (_, count) in zip(named, asked, strict=True)]
    return tuple(Offer(found, available=count) for (found, _), count in zip(asked, counts, strict=True))


def usual_offers(engines: Iterable[str]) -> tuple[Offer, ...]:
    """GPUs to choose from where none is named: those that are usual for one of the engines."""
    from kvplan.files.gpus.listed import list_gpus

    engines = list(engines)
    return tuple(Offer(one) for one in list_gpus() if any(is_usual(one, engine) for engine in engines))


def is_usual(gpu: Gpu, engine: str) -> bool:
    """Whether a plan that names no GPU may propose this one: whole, to be had, made for the market where the
    engine is run (or of a file of the user's own), documented by the engine, and with the rates that its
    times rest on.
    """
    traits = traits_of(engine)
    return (
        not (gpu.is_mig_slice or gpu.is_announced)
        and (gpu.market is None or gpu.market in traits.markets)
        and (gpu.compute_capability is None or gpu.compute_capability >= traits.documented_from)
        and (bool(gpu.dense_tflops) or not traits.timed)
    )


def _is_counted(one: Gpu | str) -> bool:
    """Whether a text says how many there are: ``8xh100``, ``1xh100``, not ``h100`` nor ``mi300x``."""
    from kvplan.files.gpus.find import parse_gpu_count

    return isinstance(one, str) and parse_gpu_count(one)[0] != one.strip()


def lengths_of(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """max_model_len tried, rising."""
    if isinstance(given, str):
        given = listed(given)  # type: ignore[assignment]
    many = [given] if isinstance(given, int) else check_each("max_model_len", given, _LENGTH)
    return tuple(sorted({parse_tokens(one) for one in many}))


def sizes_of(given: Sizes) -> tuple[int, ...] | None:
    """A size or several; a text is a comma list."""
    if given is None:
        return None
    if isinstance(given, str):
        words = listed(given)
        if not all(one.isascii() and one.isdigit() and len(one) < 7 for one in words):
            raise KvplanError("bad-setting", f"{given!r}: whole numbers of at least 1")
        given = [int(one) for one in words]
    many = (given,) if isinstance(given, int) else tuple(check_each("a parallel size", given, _WHOLE))
    if not many or any(isinstance(one, bool) or one < 1 for one in many):
        raise KvplanError("bad-setting", f"{given!r}: whole numbers of at least 1")
    return many


def words_of(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """A KV format or several; a text is a comma list."""
    if given is None or isinstance(given, str):
        return None if given is None else tuple(listed(given))
    return tuple(check_each("kv_cache_dtype", given, _TEXT))


def seconds_of(name: str, given: object) -> Fraction | None:
    """A time in seconds, exactly as written."""
    return None if given is None else parse_number(name, given)


def elsewhere(
    result: PlanResult, asked: Callable[[Choice], Ask], choices: Sequence[Choice]
) -> tuple[SuggestedFix, ...]:
    """Engines that serve the load there; none where the choices that were asked for run on one of the GPUs.

    asked: the question, put to an engine; raises KvplanError where that one has no word for it.
    """
    refused = {gpu for one in result.reasons if one.code == "engine-gpu" for gpu in one.gpus}
    if result.options or refused != {one.gpu for one in result.unserved}:
        return ()
    asks, _ = asks_of(asked, [*choices, *choices_of(ALL)], forgiving=True)
    return other_engines(asks)
