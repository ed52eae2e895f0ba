"""Ways out of a failed check: each is a changed plan that was checked, before it is said.

A way counts where the error is gone and no error came that was not there before; where an engine would not
start at all, a way that starts it counts too, with what would be left to mend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any

from kvplan.checking.case import Case
from kvplan.checking.rules import STARTED_CODES, errors_of
from kvplan.checking.start import MOST
from kvplan.deployment.fixes import LARGEST_SHARE, least_trials
from kvplan.deployment.gpus import fewest_gpus
from kvplan.deployment.resolve import resolve
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.named import NamedTuple
from kvplan.plans.findings import Finding
from kvplan.plans.plan import QUALITIES, SAFE, Plan
from kvplan.plans.question import HOST_MEMORY, question_of
from kvplan.plans.serve import flag_for, serve_of
from kvplan.record import Json, replace
from kvplan.settings import with_setting
from kvplan.units import MIB, ceil_div

MOST_REPLICAS = 4096
MOST_WAYS = 5
_TENSOR = (2, 4, 8, 16)
_FREE_SHARE = Fraction(LARGEST_SHARE, 100)


class Way(NamedTuple):
    """A change in the plan's own words, and the plan with it."""

    text: str
    plan: Plan


Proposal = Callable[[Case, Finding], Iterator[Way]]


def with_ways(case: Case, findings: list[Finding]) -> list[Finding]:
    """The errors with the fixes of each, nearest first."""
    search = _Search(case, frozenset(finding.code for finding in findings))
    return [replace(finding, help=search.ways(finding)) for finding in findings]


class _Search:
    """Tries changes; what a change leads to is remembered, for several findings ask for the same."""

    def __init__(self, case: Case, codes: frozenset[str]) -> None:
        self.case, self.codes = case, codes
        self._tried: dict[str, frozenset[str] | None] = {}

    def ways(self, finding: Finding) -> tuple[str, ...]:
        found: list[str] = []
        partly: list[str] = []
        for propose in PROPOSALS.get(finding.code, (_suggested,)):
            for way in propose(self.case, finding):
                left = self._left(way)
                if left is None or finding.code in left:
                    continue
                if left <= self.codes:
                    if way.text not in found:
                        found.append(way.text)
                    break
                # Of an engine that does not start nobody knew what else is wrong.
                if self.case.refusal is not None and left <= STARTED_CODES:
                    partly.append(f"{way.text} (it would start; {', '.join(sorted(left))} would be left)")
                    break
        return tuple((found or partly)[:MOST_WAYS])

    def _left(self, way: Way) -> frozenset[str] | None:
        """Codes of the errors that the changed plan has."""
        if way.text not in self._tried:
            self._tried[way.text] = codes_of(way.plan, self.case)
        return self._tried[way.text]


def codes_of(plan: Plan, case: Case) -> frozenset[str] | None:
    """Codes of the errors of a changed plan; None where kvplan cannot answer."""
    try:
        return frozenset(finding.code for finding in errors_of(Case(plan, case.model)))
    except KvplanError:
        return None


def _set(case: Case, setting: str, value: Any, **changes: Any) -> Iterator[Way]:
    """The plan with one setting changed, where the engine has a flag for it."""
    flag = flag_for(case.plan.engine, setting)
    if flag is None:
        return
    settings = replace(case.plan.settings, **{setting: value})
    text = f"serve.{flag}: {float(value) if isinstance(value, Fraction) else value}"
    for name, one in changes.items():
        text += f" with {name}: {one}"
    try:
        yield Way(text, replace(case.plan, settings=settings, **changes))
    except KvplanError:
        return


def _length(case: Case, finding: Finding) -> Iterator[Way]:
    """The longest length with which the engine starts, or the one that is asked for."""
    if case.refusal is not None:
        largest = case.refusal.largest_max_model_len
        if largest:
            yield from _set(case, "max_model_len", largest)
        return
    plan = case.plan
    asked = [plan.require.max_model_len, plan.require.tokens, plan.workload and plan.workload.longest]
    longest = max((tokens for tokens in asked if tokens), default=0)
    if longest:
        yield from _set(case, "max_model_len", longest)


def _wider(case: Case, finding: Finding) -> Iterator[Way]:
    """More tensor parallelism on the GPUs that are there; else on as many as one engine takes."""
    plan = case.plan
    own = plan.settings.tensor_parallel_size
    each = plan.gpus_per_replica // own
    for ways in _TENSOR:
        if ways <= own:
            continue
        needed = ceil_div(plan.gpus, each * ways) * each * ways
        more = {"gpus": needed} if needed != plan.gpus else {}
        yield from _set(case, "tensor_parallel_size", ways, **more)


def _tensor_for_pipeline(case: Case, finding: Finding) -> Iterator[Way]:
    """The same GPUs as tensor-parallel ranks of one stage."""
    settings, engine = case.plan.settings, case.plan.engine
    tensor, pipeline = (flag_for(engine, f"{name}_parallel_size") for name in ("tensor", "pipeline"))
    ways = settings.tensor_parallel_size * settings.pipeline_parallel_size
    if tensor is not None and pipeline is not None and settings.pipeline_parallel_size > 1:
        changed = replace(settings, tensor_parallel_size=ways, pipeline_parallel_size=1)
        yield Way(f"serve.{tensor}: {ways} with serve.{pipeline}: 1", replace(case.plan, settings=changed))


def _narrower(case: Case, finding: Finding) -> Iterator[Way]:
    own = case.plan.settings.tensor_parallel_size
    for ways in range(own - 1, 0, -1):
        if own % ways == 0:
            yield from _set(case, "tensor_parallel_size", ways)


def _kv_dtype(case: Case, finding: Finding) -> Iterator[Way]:
    if case.plan.settings.kv_cache_dtype in _PLAIN:
        yield from _set(case, "kv_cache_dtype", "fp8")


def _plain_dtype(case: Case, finding: Finding) -> Iterator[Way]:
    yield from _set(case, "kv_cache_dtype", "fp8")
    yield from _set(case, "kv_cache_dtype", "auto")


def _weights(case: Case, finding: Finding) -> Iterator[Way]:
    if case.plan.settings.quantization is None and not case.model.quantization:
        yield from _set(case, "quantization", "fp8")


def _utilization(case: Case, finding: Finding) -> Iterator[Way]:
    """A larger part of the memory, where the engine has a flag for it."""
    settings = case.plan.settings
    given = settings.gpu_memory_utilization
    if given is None or given < _FREE_SHARE:
        yield from _set(case, "gpu_memory_utilization", _FREE_SHARE)
    if flag_for(case.plan.engine, "free_gpu_memory_fraction") is not None:
        changed = with_setting(settings, "free_gpu_memory_fraction", _FREE_SHARE)
        yield Way("serve.free_gpu_memory_fraction: 0.95", replace(case.plan, settings=changed))


def _more_gpus(case: Case, finding: Finding) -> Iterator[Way]:
    """The fewest further engines that do, found by doubling and bisection."""
    plan, each = case.plan, case.plan.gpus_per_replica
    low = plan.replicas

    def with_replicas(count: int) -> Way:
        return Way(f"gpus: {count * each}", replace(plan, gpus=count * each))

    def does(count: int) -> bool:
        left = codes_of(with_replicas(count).plan, case)
        return left is not None and finding.code not in left

    high = max(low * 2, 1)
    while high <= MOST_REPLICAS and not does(high):
        low, high = high, high * 2
    if high > MOST_REPLICAS:
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    yield with_replicas(high)


def _fewest_gpus(case: Case, finding: Finding) -> Iterator[Way]:
    """The fewest GPUs of the kind that hold the requests, as `kvplan size` and `plan` of the file say it: in
    wider servers or more of them, with max_num_seqs raised where that is the limit."""
    plan = case.plan
    if case.result is None or case.refusal is not None or plan.settings.gpu is None:
        return
    if case.reserved:
        return  # what is kept free is no request: `_beside_reserve`
    deployment = resolve(question_of(plan, case.model, case.choice))
    more, safe = bool(_raised(case)), plan.require.pool == SAFE
    found = []
    for settings in _formats(plan):
        asked = replace(deployment, settings=replace(deployment.settings, **settings))
        fewest = fewest_gpus(asked, safe=safe, more_sequences=more)
        if fewest is not None and fewest.gpus > plan.gpus:
            found.append((fewest, settings))
    for fewest, settings in sorted(found, key=lambda one: one[0].gpus):
        changes: dict[str, Any] = dict(settings)
        for name in ("tensor_parallel_size", "max_num_seqs"):
            value = getattr(fewest.settings, name)
            if value != getattr(plan.settings, name):
                changes[name] = value
        yield _with(replace(plan, gpus=fewest.gpus), f"gpus: {fewest.gpus}", changes)


def _formats(plan: Plan) -> list[dict[str, Any]]:
    """KV formats of a plan that a search may choose: its own, and fp8 where its quality allows that."""
    plain = plan.settings.kv_cache_dtype in _PLAIN and plan.quality != QUALITIES[0]
    return [{}, *([{"kv_cache_dtype": "fp8"}] if plain else [])]


_PLAIN = ("auto", "bfloat16", "float16")


def _beside_reserve(propose: Proposal) -> Proposal:
    """The change where a part of each pool is kept free, which `_fewest_gpus` does not count."""
    return lambda case, finding: propose(case, finding) if case.reserved else iter(())


def _raised(case: Case) -> dict[str, int]:
    """max_num_seqs for the requests, where the engine runs fewer at once whatever the memory."""
    wanted = max(_sequences(case), 1)
    if case.max_num_seqs is None or case.max_num_seqs >= wanted:
        return {}
    return {} if flag_for(case.plan.engine, "max_num_seqs") is None else {"max_num_seqs": wanted}


def _with(plan: Plan, text: str, changes: Json) -> Way:
    """The plan with further settings, and their flags in the text."""
    for setting, value in changes.items():
        text += f" with serve.{flag_for(plan.engine, setting) or setting}: {value}"
    return Way(text, replace(plan, settings=replace(plan.settings, **changes)))


def _raised_too(propose: Proposal) -> Proposal:
    """The same change with max_num_seqs raised for the requests, where that is a limit of its own."""

    def ways(case: Case, finding: Finding) -> Iterator[Way]:
        raised = _raised(case)
        for way in propose(case, finding):
            yield _with(way.plan, way.text, raised) if raised else way

    return ways


_OPTION = regex(r"--([a-z][a-z-]+) ([\w.]+)(?::.*)?$")


def _suggested(case: Case, finding: Finding) -> Iterator[Way]:
    """The change that the engine's refusal suggests, as a flag of the plan."""
    for text in case.refusal.help if case.refusal is not None else ():
        option = _OPTION.match(text)
        if option is None:
            continue
        name, word = option[1].replace("-", "_"), option[2]
        name = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}.get(name, name)
        flag = flag_for(case.plan.engine, name)
        if flag is None:
            continue
        value: object = int(word) if word.isdigit() else word
        try:
            settings = with_setting(case.plan.settings, name, value)
        except KvplanError:
            continue
        yield Way(f"serve.{flag}: {value}", replace(case.plan, settings=settings))


def _whole_engines(case: Case, finding: Finding) -> Iterator[Way]:
    plan, each = case.plan, case.plan.gpus_per_replica
    for count in (plan.gpus // each * each, ceil_div(plan.gpus, each) * each):
        if count and count != plan.gpus:
            yield Way(f"gpus: {count}", replace(plan, gpus=count))


def _seqs(case: Case, finding: Finding) -> Iterator[Way]:
    yield from _set(case, "max_num_seqs", max(_sequences(case), 1))


def _sequences(case: Case) -> int:
    samples = case.plan.workload.samples if case.plan.workload is not None else 1
    return case.asked_of_a_pool * samples


def _fewer_requests(case: Case, finding: Finding) -> Iterator[Way]:
    tokens = case.plan.require.tokens
    most = case.most(tokens) if tokens is not None and case.refusal is None else 0
    if 0 < most < MOST:
        yield Way(f"require.requests: {most}", _required(case.plan, requests=most))


def _shorter_requests(case: Case, finding: Finding) -> Iterator[Way]:
    wanted = case.plan.require.requests
    longest = case.longest(wanted) if wanted is not None and case.refusal is None else 0
    if longest:
        yield Way(f"require.tokens: {longest}", _required(case.plan, tokens=longest))


def _fewer_in_flight(case: Case, finding: Finding) -> Iterator[Way]:
    workload = case.plan.workload
    if workload is None or not 0 < case.most_of_mix < MOST:
        return
    fewer = replace(workload, requests_in_flight=case.most_of_mix)
    yield Way(f"workload.requests_in_flight: {case.most_of_mix}", replace(case.plan, workload=fewer))


def _smaller_pool(case: Case, finding: Finding) -> Iterator[Way]:
    """The bytes that the budget leaves, in whole MiB."""
    budget = case.unstated_budget
    if budget is None:
        return
    left = (budget.total_bytes - sum(line.bytes for line in budget.lines)) // MIB * MIB
    if left > 0:
        yield from _set(case, "kv_cache_memory", left)


def _prefix_caching(case: Case, finding: Finding) -> Iterator[Way]:
    yield from _set(case, "enable_prefix_caching", True)


def _lower_quality(case: Case, finding: Finding) -> Iterator[Way]:
    for quality in ("safe", "aggressive"):
        yield Way(f"quality: {quality}", replace(case.plan, quality=quality))


def _fewer_gpus(case: Case, finding: Finding) -> Iterator[Way]:
    plan = case.plan
    most, price = plan.require.max_cost_per_hour, plan.price_per_gpu_hour
    if most is None or price is None:
        return
    count = int(most / price) // plan.gpus_per_replica * plan.gpus_per_replica
    if count:
        yield Way(f"gpus: {count}", replace(plan, gpus=count))


def _own_words(kind: int, case: Case, finding: Finding) -> Iterator[Way]:
    """Changes that the engine offers to make room (``trials``), by number: the least of each kind."""
    plan, tried = (
        case.plan,
        next(islice(least_trials(case.model, case.choice, case.settings), kind, None), None),
    )
    if tried is None:
        return
    own = {name: getattr(tried[1], name) for name in _TRIED}
    changed = replace(plan.settings, own=tried[1].own.without(HOST_MEMORY), **own)
    before = dict(serve_of(plan.settings, plan.engine))
    words = [
        f"serve.{flag}: {value}"
        for flag, value in serve_of(changed, plan.engine)
        if before.get(flag) != value
    ]
    other = replace(plan, settings=changed)
    if other.gpus_per_replica != plan.gpus_per_replica:
        other = replace(other, gpus=other.gpus_per_replica * plan.replicas)
        words.append(f"gpus: {other.gpus}")
    yield Way(" with ".join(words), other)


_TRIED = ("pipeline_parallel_size", "max_num_seqs", "max_num_batched_tokens")
"""Fields that an engine's trials change, beside its own options."""
_OWN_WORDS = tuple(partial(_own_words, kind) for kind in range(3))


def _required(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, require=replace(plan.require, **changes))


_CAPACITY = (_utilization, _kv_dtype, _tensor_for_pipeline, _wider, _more_gpus)
_ROOM = (
    *map(_raised_too, (_utilization, _kv_dtype, _tensor_for_pipeline)),
    *(_fewest_gpus, _beside_reserve(_wider), _beside_reserve(_more_gpus)),
)
PROPOSALS: dict[str, tuple[Proposal, ...]] = {
    "gpus-left-over": (_whole_engines,),
    "too-few-gpus": (_whole_engines, _narrower),
    "not-enough-memory": (_length, _utilization, _kv_dtype, _tensor_for_pipeline, _wider, *_OWN_WORDS),
    "no-memory-for-cache": (_tensor_for_pipeline, _wider, _utilization, _weights, *_OWN_WORDS),
    "max-model-len": (_length,),
    "tensor-parallel": (_narrower,),
    "unsupported-dtype": (_plain_dtype,),
    "cannot-start": (_plain_dtype, _narrower),
    "kv-cache-dtype": (_plain_dtype,),
    "pool-too-large": (_smaller_pool,),
    "max-model-len-too-short": (_length,),
    "requests-do-not-fit": (_seqs, *_ROOM, *_OWN_WORDS, _fewer_requests, _shorter_requests),
    "workload-does-not-fit": (*_CAPACITY, _fewer_in_flight),
    "max-num-seqs-too-small": (_seqs, _more_gpus),
    "prefix-caching-off": (_prefix_caching,),
    "prefix-cache-too-large": (_utilization, _wider),
    "quality": (_plain_dtype, _lower_quality),
    "costs-too-much": (_fewer_gpus,),
}
"""Code of an error → what is tried, in this order."""
