"""The model and the GPU that an observation is of.

A model is named outright, has a name like a card's, or is told by its class and weights. A GPU is named, told
by its memory, or is the one of which the engine's budget would leave the printed pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from kvplan.comparison.memory import DRAFTED, SAME_WEIGHTS, budget_with
from kvplan.comparison.recognise import Recognised, recognise
from kvplan.deployment.counts import ask
from kvplan.dtypes import scalar
from kvplan.engines import ENGINES
from kvplan.engines.budget.parts import kernels_of, parallel_for, sources_for
from kvplan.engines.observed import Count, Observation
from kvplan.errors import KvplanError
from kvplan.files.cards.alike import cards_alike, cards_of_class, runs_as
from kvplan.files.gpus.find import gpu_of_size
from kvplan.files.servers.sightings import (
    gpu_of,
    gpus_of_memory,
    gpus_seen,
    model_named,
    named_model,
    names_in,
    one_kind,
    spelled,
    told_total,
)
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.units import gib
from kvplan.weights.facts import weights_by_kernel

NARROW = 100
"""A total that is open by less than a hundredth of itself is taken for the GPU's."""
MOST_NAMED = 6


def model_of(
    observation: Observation, overrides: Mapping[str, object], *, engine: str | None = None
) -> Sighted:
    """The model of a card, and what is to be said of how it was found.

    A name that a card has; else the cards whose name differs by weight format or tuning alone; else those of
    the class that the engine says it runs. Of several the one whose weights are the printed ones counts; none
    is taken where the printed weights are those of no card of a class, or of several with other caches.
    Raises KvplanError(no-model | unknown-model).
    """
    architecture = _word(observation, "architecture")
    try:
        named = model_named(observation)
        if runs_as(named, architecture):
            return Sighted(named)
    except KvplanError as error:
        problem = error
    else:
        problem = KvplanError(
            "unknown-model",
            f"the {observation.source} names {named.id}, but the engine runs {architecture}",
            help="give the model: kvplan compare MODEL …",
        )
    names = names_in(observation)
    for name in names:
        alike = cards_alike(name, architecture)
        if alike:
            return _among(alike, observation, overrides, engine, name)
    printed = observation.count("weights_bytes")
    if architecture is None:
        raise problem
    if printed is None or printed.value <= 0:
        text = f"{problem.message}; the engine runs {architecture}"
        raise KvplanError(problem.code, text, help=problem.help)
    known = cards_of_class(architecture)
    fitting = [model for model in known if _off(model, observation, overrides, engine) <= SAME_WEIGHTS]
    if not fitting or len({model.runs for model in fitting}) > 1:
        what = "no card" if not fitting else "several cards"
        raise KvplanError(
            problem.code,
            f"{problem.message}; weights of {printed.printed} and {architecture} are those of {what}",
            help=problem.help,
        )
    found = _longest_enough(fitting, observation)
    text = f"taken for {found.id}: {architecture} with weights of {printed.printed}"
    return Sighted(found, (f"{names[0][:80]} is {text}" if names else f"the model is {text}",))


def _among(
    models: tuple[Model, ...],
    observation: Observation,
    overrides: Mapping[str, object],
    engine: str | None,
    name: str,
) -> Sighted:
    """Of cards with a like name the one with the printed weights, else the one that is not quantised."""
    shares = {model: _off(model, observation, overrides, engine) for model in models}
    nearest = min(models, key=lambda model: (shares[model] > SAME_WEIGHTS, bool(model.quantization)))
    if shares[nearest] > SAME_WEIGHTS:
        nearest = _longest_enough(
            [model for model in models if bool(model.quantization) == bool(nearest.quantization)], observation
        )
        # What a checkpoint says of the cache's dtype goes with its own format.
        nearest = replace(nearest, kv_cache_scheme=None)
        text = f"{name[:80]} has no card of its own: compared with {nearest.id}, which has other weights"
        return Sighted(nearest, (text,), other_format=True)
    return Sighted(nearest, (f"{name[:80]} has no card of its own: compared with {nearest.id}",))


def _longest_enough(models: Iterable[Model], observation: Observation) -> Model:
    """The first whose own length holds the one in the log; else the first."""
    length = observation.setting("max_model_len")
    found = list(models)
    if isinstance(length, int):
        return next((model for model in found if (model.max_model_len or 0) >= length), found[0])
    return found[0]


def _off(
    model: Model, observation: Observation, overrides: Mapping[str, object], engine: str | None
) -> Fraction:
    """How far the card's weights on a GPU are from the printed ones, as a share of them; 1 where not told."""
    printed = observation.count("weights_bytes")
    if printed is None or printed.value <= 0 or observation.engine not in ENGINES:
        return Fraction(1)
    try:
        amount = gpu_weights(model, recognise(observation, overrides, engine=engine))
    except KvplanError:
        return Fraction(1)
    return weights_off(printed, amount, drafted=observation.setting("speculative_method") is not None)


def weights_off(printed: Count, amount: int, *, drafted: bool) -> Fraction:
    """The distance of an amount from the printed weights; those of a draft lie in the printed ones as
    well."""
    most = amount + int(amount * DRAFTED) if drafted else amount
    gap = max(amount - printed.high, printed.low - most, 0)
    return Fraction(gap, printed.value)


def gpu_weights(model: Model, recognised: Recognised) -> int:
    """The card's weights on one GPU under the settings of a log. Raises KvplanError."""
    choice = recognised.choice
    settings = replace(recognised.settings, quantization=None, kv_cache_memory=None, gpu=None)
    settings = replace(settings, speculative_method=None, num_speculative_tokens=0, max_model_len=None)
    started = ask(model, choice, settings)
    dtype = scalar(str(started.settings.get("dtype", model.dtype)))
    parallel = parallel_for(model, choice, settings, started)
    sources = sources_for(model, settings)
    return weights_by_kernel(sources, parallel, dtype, kernels_of(choice, model, settings)).bytes_per_gpu


def draft_of(observation: Observation, model: Model) -> Model | None:
    """The card of the draft that the engine names; None where it names none, or the model itself."""
    name = _word(observation, "speculative_model")
    if name is None or _word(observation, "speculative_method") == "mtp":
        return None
    try:
        found = named_model(spelled(name))
    except KvplanError:
        return None
    return None if found is None or found.id == model.id else found


class Sighted(NamedTuple):
    """A model, what is to be said of how it was found, and whether its weights are in another format."""

    model: Model
    said: tuple[str, ...] = ()
    other_format: bool = False


class Machine(NamedTuple):
    """gpu: what the settings name; words: how it is told. card: memory without a name. inferred: by the pool
    that was printed, which therefore proves nothing. said: why there is none."""

    gpu: Gpu | None = None
    words: str | None = None
    card: Gpu | None = None
    inferred: bool = False
    said: tuple[str, ...] = ()


def machine_of(
    model: Model, observation: Observation, overrides: Mapping[str, object], *, engine: str | None = None
) -> Machine:
    """The GPU of an observation where the user names none."""
    seen = gpu_of(observation)
    if seen is not None:
        return Machine(seen.gpu, seen.words)
    printed = observation.count("total_memory_bytes")
    if printed is not None and printed.value > 0:
        alike = " or ".join(gpu.slug for gpu in gpus_of_memory(observation)[:MOST_NAMED])
        said = (f"its memory is that of {alike}: --gpu NAME says which",) if alike else ()
        return Machine(card=gpu_of_size(gib(printed.value).replace(" ", "")), said=said)
    told = told_total(observation)
    if told is not None and (told[1] - told[0]) * NARROW < told[0]:
        return Machine(card=gpu_of_size(gib((told[0] + told[1]) // 2).replace(" ", "")))
    return _by_pool(model, observation, overrides, engine)


def _by_pool(
    model: Model, observation: Observation, overrides: Mapping[str, object], engine: str | None
) -> Machine:
    """The GPUs whose budget holds the printed pool: taken where they are of one kind."""
    weights, pool = observation.count("weights_bytes"), observation.count("available_kv_bytes")
    if weights is None or pool is None or min(weights.value, pool.value) <= 0:
        return Machine()
    try:
        recognised = recognise(observation, overrides, engine=engine)
    except KvplanError:
        return Machine()
    told = told_total(observation)
    fitting = []
    for gpu in gpus_seen(observation):
        total = gpu.memory_total_bytes
        if total is None or gpu.is_mig_slice or total < weights.value + pool.value:
            continue
        if told is not None and not told[0] <= total <= told[1]:
            continue
        budget = budget_with(model, recognised, gpu, weights.value)
        if (
            budget is not None
            and budget.kv_pool_low_bytes <= pool.high
            and pool.low <= budget.kv_pool_high_bytes
        ):
            fitting.append(gpu)
    found = one_kind(fitting, "memory, by the pool that it leaves")
    if found is not None:
        return Machine(found.gpu, found.words, inferred=True)
    names = ", ".join(gpu.slug for gpu in fitting[:MOST_NAMED])
    return Machine(
        said=(f"the log does not tell the GPU; its pool would be left on {names}",) if names else ()
    )


def _word(observation: Observation, name: str) -> str | None:
    value = observation.setting(name)
    return value if isinstance(value, str) and value else None
