"""Changes with which a load would be held: every suggestion is an answer of the engine, none a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from kvplan.deployment.answer import Answer
from kvplan.deployment.counts import fits_pool, largest_tokens, max_requests
from kvplan.deployment.gpus import fewest_gpus
from kvplan.deployment.held import least_memory
from kvplan.deployment.resolve import Deployment
from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import Settings, media_tokens, with_setting
from kvplan.units import MIB, human_bytes

SHARES = ("gpu_memory_utilization", "free_gpu_memory_fraction")
"""Settings of a share beside which activations and graphs are counted: more of it takes nothing from them."""
LARGEST_SHARE = 95
"""In hundredths: what is above is left to the driver and to what else runs on the GPU."""
Steps = Sequence[tuple[str, Settings]]
Trials = Callable[[Model, Settings], Iterable[Steps]]


class Fix(NamedTuple):
    """A change that makes room. options: as they are added to the command; why: what is then."""

    options: str
    why: str

    @property
    def words(self) -> str:
        return f"{self.options}: {self.why}"


def suggested_fixes(found: Answer) -> tuple[Fix, ...]:
    """Changes with which a deployment would hold its load, or its engine would start: nearest first."""
    deployment, result = found.deployment, found.result
    settings = own_settings(deployment.choice.engine, deployment.settings)
    deployment = replace(deployment, settings=replace(settings, tokens=result.request.tokens))
    if result.budget is not None and result.budget.kv_pool_bytes == 0:
        # The refusal has the rest, where any of it is enough.
        more = () if result.refusal is not None and result.refusal.help else _more_gpus(deployment, result)
        return (*more, *_engines_own(deployment, result))
    own_length = _own_length(deployment, result)
    return (
        *own_length,
        *_more_sequences(deployment, result),
        *(() if result.refusal is not None else _smaller_load(deployment, result)),
        *_more_gpus(deployment, result),
        *_narrower_cache(deployment),
        *_more_memory(deployment, result),
        *_engines_own(deployment, result),
    )


def _fit(deployment: Deployment) -> str:
    return "it fits" if deployment.requests == 1 else "they fit"


def _smaller_load(deployment: Deployment, result: SizeResult) -> Iterator[Fix]:
    """As many requests as there is room for, and the longest that as many may be."""
    model, choice, settings = deployment.model, deployment.choice, deployment.settings
    tokens = result.request.tokens
    most = max_requests(model, choice, settings, result) * deployment.pools
    if most:
        yield Fix(f"--requests {most}", f"as many of {tokens:,} tokens fit")
    beside = media_tokens(result.settings.items())
    longest = largest_tokens(model, choice, settings)
    if longest > beside:
        number = deployment.requests
        fitting = "one request fits" if number == 1 else f"{number:,} requests fit"
        yield Fix(f"--tokens {longest - beside}", f"the largest length at which {fitting}")


def _sequences(deployment: Deployment, result: SizeResult) -> int | None:
    """max_num_seqs for the load, where the engine runs fewer sequences at once than were asked for."""
    pool, wanted = result.pool, deployment.settings.requests
    foreign = traits_of(deployment.choice.engine.name).foreign
    if pool is None or pool.max_num_seqs >= wanted or "max_num_seqs" in foreign:
        return None
    return wanted


def _more_sequences(deployment: Deployment, result: SizeResult) -> Iterator[Fix]:
    wanted = _sequences(deployment, result)
    if wanted is not None and _holds(deployment, max_num_seqs=wanted):
        yield Fix(f"--max-num-seqs {wanted}", f"then {_fit(deployment)}: memory is not the limit")


def _more_gpus(deployment: Deployment, result: SizeResult) -> Iterator[Fix]:
    """The fewest GPUs of the kind: more replicas, or wider tensor parallelism."""
    gpu = deployment.settings.gpu
    if result.budget is None or gpu is None or traits_of(deployment.choice.engine.name).spread:
        return
    found = [
        fewest
        for more in dict.fromkeys((False, _sequences(deployment, result) is not None))
        if (fewest := fewest_gpus(deployment, more_sequences=more)) is not None
    ]
    if not found:
        return
    dealt = min(found, key=lambda one: one.gpus)
    if (dealt.gpus, dealt.replicas) == (deployment.gpus, deployment.replicas):
        return  # a larger max_num_seqs alone: `_more_sequences`
    name = gpu.memory_marketing if gpu.slug.startswith("unlisted-") else gpu.slug
    words = f"--gpu {dealt.gpus}x{name} --tp {dealt.settings.tensor_parallel_size}"
    if dealt.settings.max_num_seqs != deployment.settings.max_num_seqs:
        words += f" --max-num-seqs {dealt.settings.max_num_seqs}"
    gpus = f"{dealt.gpus:,} GPU{'s' * (dealt.gpus > 1)}"
    parts = f"{gpus}, {dealt.replicas} replicas" if dealt.replicas > 1 else f"{gpus}, one replica"
    yield Fix(words, f"{parts}: then {_fit(deployment)}")


def _narrower_cache(deployment: Deployment) -> Iterator[Fix]:
    if _holds(deployment, kv_cache_dtype="fp8"):
        yield Fix("--kv-cache-dtype fp8", f"then {_fit(deployment)}")


def _more_memory(deployment: Deployment, result: SizeResult) -> Iterator[Fix]:
    if result.budget is not None:
        return
    needed = least_memory(deployment.model, deployment.choice, deployment.settings)
    if needed:
        what = "what it needs" if deployment.requests == 1 else "what they need"
        yield Fix(f"--kv-cache-memory {needed // MIB}MiB", f"{what} ({human_bytes(needed)})")


def _own_length(deployment: Deployment, result: SizeResult) -> Iterator[Fix]:
    """The requests' own length as max_model_len, where the engine would start with that."""
    shorter = _shortened(deployment.settings, result)
    if shorter is not None and _holds(replace(deployment, settings=shorter)):
        number = deployment.requests
        fits = "one request fits" if number == 1 else f"{number:,} requests fit"
        yield Fix(f"--max-model-len {shorter.tokens}", f"{fits} at {shorter.tokens:,} tokens")


def _shortened(asked: Settings, result: SizeResult) -> Settings | None:
    """Started for the requests' own length, where a longer one is what keeps the engine from starting."""
    largest = result.refusal.largest_max_model_len if result.refusal is not None else None
    if asked.max_model_len is not None or not asked.tokens or not largest:
        return None
    longest = result.settings.get("max_model_len")
    if isinstance(longest, int) and asked.tokens >= longest:
        return None
    return replace(asked, max_model_len=asked.tokens)


def _engines_own(deployment: Deployment, result: SizeResult) -> tuple[Fix, ...]:
    """The engine's own changes and a larger share of the memory; where none is enough as it is started, with
    the requests' own length, unless that is enough alone."""
    model, choice, asked = deployment.model, deployment.choice, deployment.settings
    then = f"then {_fit(deployment)}"
    found = _least_words(model, choice, asked)
    shorter = _shortened(asked, result)
    if not found and shorter is not None and not fits_pool(model, choice, shorter):
        words = _least_words(model, choice, shorter)
        found = tuple(f"--max-model-len {asked.tokens} {way}" for way in words)
    return tuple(Fix(way, then) for way in found)


def _least_words(model: Model, choice: Choice, asked: Settings) -> tuple[str, ...]:
    least = (*least_trials(model, choice, asked), least_of(model, choice, _shares(choice, asked)))
    return tuple(one[0] for one in least if one is not None)


def _shares(choice: Choice, asked: Settings) -> Steps:
    """Larger parts of a GPU's memory; the engine must count what else it takes beside them."""
    entry = traits_of(choice.engine.name).memory_share
    if entry is None or entry.setting not in SHARES or asked.gpu is None or asked.kv_cache_memory is not None:
        return ()
    given = asked.gpu_memory_utilization or asked.own.get(entry.setting) or 0
    return [
        (f"{entry.flag} {float(share):g}", with_setting(asked, entry.setting, share))
        for share in (Fraction(step, 100) for step in range(91, LARGEST_SHARE + 1))
        if share > Fraction(str(given))
    ]


def least_trials(model: Model, choice: Choice, asked: Settings) -> Iterator[tuple[str, Settings] | None]:
    """Of each kind of change that the engine offers (``trials``), the least with which the requests fit: its
    words and the settings; None where none does.

    A kind is sorted from the least change to the most: what fits with one fits with those after it.
    """
    offered: Trials | None = getattr(choice.engine, "trials", None)
    for kind in offered(model, asked) if offered is not None else ():
        yield least_of(model, choice, kind)


def least_of(
    model: Model, choice: Choice, kind: Sequence[tuple[str, Settings]]
) -> tuple[str, Settings] | None:
    """The first change with which the requests fit, of a kind that is sorted from the least to the most."""
    low, high = -1, len(kind) - 1
    if high < 0 or not fits_pool(model, choice, kind[high][1]):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits_pool(model, choice, kind[middle][1]) else (middle, high)
    return kind[high]


def _holds(deployment: Deployment, **changes: Any) -> bool:
    settings = replace(deployment.settings, **changes)
    return fits_pool(deployment.model, deployment.choice, settings)
