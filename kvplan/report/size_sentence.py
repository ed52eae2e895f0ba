"""The answer of ``kvplan size`` as a sentence, with what would make it a yes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvplan.deployment.answer import Answer, Counted
from kvplan.deployment.counts import MAX_REQUESTS
from kvplan.deployment.lengths import Longest
from kvplan.deployment.resolve import Deployment
from kvplan.plans.serve import flag_for
from kvplan.report.layout import Screen, wrapped
from kvplan.report.notes import help_lines, styled
from kvplan.report.words import count, engine_title, gpus_of_request, request_ranks, size_words
from kvplan.results import Budget, SizeResult, Verdict
from kvplan.units import gib

if TYPE_CHECKING:
    from kvplan.deployment.fixes import Fix
    from kvplan.deployment.gains import Gain

_WORDS = {
    Verdict.YES: ("Yes:", "good"),
    Verdict.LIKELY: ("Likely:", "warn"),
    Verdict.UNLIKELY: ("Unlikely:", "bad"),
    Verdict.NO: ("No:", "bad"),
}


def size_sentence(found: Answer, fixes: Sequence[Fix] = ()) -> Screen:
    """The answer, then what would make it a yes: nearest to what was asked first."""
    result, verdict = found.result, found.verdict
    helps = tuple(fix.words for fix in fixes)
    refusal = result.refusal
    if refusal is None and found.likely is not None:
        refusal = found.likely.refusal
    if refusal is not None:
        first = 1 if fixes and fixes[0].options.startswith("--max-model-len") else 0
        helps = _once((*helps[:first], *refusal.help, *helps[first:]))
        text = _refused(found, refusal.message)
    elif verdict is None:
        return _bytes_sentence(result)
    else:
        text = _counted(found)
        helps = () if found.holds else helps
        # Where the likely pool starts and the safe one does not, the engine's own reason says what would do.
        never = found.safe.refusal if found.safe is not None and verdict is Verdict.LIKELY else None
        if never is not None:
            text += f" In the safe pool {engine_title(result.engine)} refuses: {never.message}."
            helps = (*never.help[:1], *helps)
    return [*judged(text, verdict or Verdict.NO, result if refusal is None else None), *help_lines(helps)]


def judged(text: str, verdict: Verdict, result: SizeResult | None) -> Screen:
    """A sentence after its verdict. result: of what starts."""
    word, style = _WORDS[verdict]
    hang = 0
    if verdict in (Verdict.YES, Verdict.LIKELY) and result is not None and elsewhere(result):
        # Every token waits for host memory: it starts, and is not what a yes promises.
        slow = "maybe slow" if _likely_whole(result) else "slow"
        word, style, hang = f"{word.removesuffix(':')}, {slow}:", "warn", len(word) + 1
    head = wrapped(text, first=f"{word} ", hang=hang)
    return [styled(head[0], word, style), *head[1:]]


def _once(helps: Iterable[str]) -> tuple[str, ...]:
    """Each suggestion once, the first time that it is said."""
    found: dict[str, str] = {}
    for text in helps:
        found.setdefault(text.partition(": ")[0], text)
    return tuple(found.values())


def _refused(found: Answer, message: str) -> str:
    result, budget = found.result, found.result.budget
    text = f"{engine_title(result.engine)} would not serve {result.model.id}: {message}"
    if found.verdict is Verdict.UNLIKELY and budget is not None:
        text += f". It may start: {_reaches(found, budget)}"
    return f"{text}."


def _reaches(found: Answer, budget: Budget) -> str:
    """The upper end of the estimate, and the need of the load."""
    needed = found.needed_bytes
    reaches = f"the interval reaches {gib(budget.kv_pool_high_bytes)}"
    return reaches if needed is None else f"{reaches}, {gib(needed)} are needed"


def _counted(found: Answer) -> str:
    """``llama on 1 × h100 holds 7 requests of 32,768 tokens (safely 6).``"""
    result, deployment = found.result, found.deployment
    likely, safe = found.likely, found.safe
    assert likely is not None
    assert safe is not None
    pools, verdict = deployment.pools, found.verdict
    length = length_words(result)
    most = likely.each * pools
    number = "any number of requests" if likely.each >= MAX_REQUESTS else count(most, "request")
    if verdict in (Verdict.YES, Verdict.LIKELY):
        holds = f"holds {number} of {length}"
    elif most:
        holds = f"holds only {number} of {length}"
    else:
        holds = f"holds no request of {length}"
    if pools > 1 and most:
        holds += f", {likely.each:,} {_pool_words(found)}"
    holds += limit_words(result)
    sure, started = _safely(likely, safe, pools), _started(deployment)
    ends = f"{sure}{elsewhere(result)}{started}" if safe.each else f"{started}{elsewhere(result)}{sure}"
    text = f"{deployment_words(found)} {holds}{ends}."
    if verdict is Verdict.UNLIKELY and result.budget is not None:
        text += f" It may hold {deployment.requests:,}: {_reaches(found, result.budget)}."
    elif verdict is Verdict.NO and most and deployment.requests > 1:
        text += f" {deployment.requests:,} were asked for."
    return text


def limit_words(result: SizeResult) -> str:
    """`` (by max_num_seqs; memory holds 41)``, where that is the limit."""
    capacity = result.capacity
    if capacity is None or not capacity.capped:
        return ""
    room = "" if capacity.memory_requests is None else f"; memory holds {capacity.memory_requests:,}"
    return f" (by {limit_flag(result)}{room})"


def limit_flag(result: SizeResult) -> str:
    """``max_num_seqs``, by the engine's own name."""
    return flag_for(f"{result.engine.name}@{result.engine.version}", "max_num_seqs") or "max_num_seqs"


def deployment_words(found: Answer) -> str:
    """``llama on 8 × h100 (4 replicas of 2)``, or the memory that was stated."""
    result, deployment = found.result, found.deployment
    if result.budget is None or deployment.settings.kv_cache_memory is not None:
        memory = found.likely.memory if found.likely is not None else 0
        gpus = gpus_of_request(result)
        where = "of cache" if gpus == 1 else f"of cache on each of {gpus} GPUs"
        return f"{result.model.id} with {size_words(memory)} {where}"
    unequal = result.settings.get("unequal_gpus")
    used, named = deployment.gpus - deployment.idle_gpus, deployment.gpus
    shown = f"{used:,} of {named:,}" if used < named else f"{named:,}"
    where = str(unequal) if unequal else f"{shown} × {result.budget.gpu}"
    if deployment.replicas > 1:
        where += f" ({deployment.replicas} replicas of {count(deployment.gpus_per_replica, 'GPU')})"
    return f"{result.model.id} on {where}"


def _pool_words(found: Answer) -> str:
    deployment = found.deployment
    if deployment.pools == deployment.replicas:
        return "each"
    ranks, name = request_ranks(found.result)
    return f"in each of {deployment.pools:,} {name if ranks == deployment.pools else 'pools'}"


def _safely(likely: Counted, safe: Counted, pools: int) -> str:
    """The count of the safe pool, where it is another."""
    if safe.refusal is None and safe.each == likely.each and safe.max_model_len == likely.max_model_len:
        return ""
    shorter = safe.max_model_len
    if not safe.each:
        else_ = f"may start with max_model_len {shorter:,}" if shorter else "may not start"
        return f"; safely none: it {else_}"
    return f" (safely {safe.each * pools:,})"


def elsewhere(result: SizeResult) -> str:
    """The part of the model in host memory."""
    hosted, on_gpu = (int(result.settings.get(f"layers_on_{place}") or 0) for place in ("host", "gpu"))
    experts = int(result.settings.get("expert_layers_on_host") or 0)
    found = [f"{hosted} of {hosted + on_gpu} layers"] if hosted else []
    found += [f"the experts of {count(experts, 'layer')}"] if experts else []
    likely = ", likely none" if found and _likely_whole(result) else ""
    return f"; {' and '.join(found)} in host memory{likely}" if found else ""


def _likely_whole(result: SizeResult) -> bool:
    """Whether what lies in host memory, so as to start safely, is likely to fit on the GPUs."""
    whole = next((way for way in result.ways if not way.hosted), None)
    if whole is None or result.request.count > 1:
        return False
    return whole.cache == result.settings.get("cache_type_k") and (whole.likely or 0) >= result.request.tokens


def _started(deployment: Deployment) -> str:
    """With what length the server is started, where kvplan chose it."""
    length = deployment.chosen_length
    return "" if length is None else f", started with {length_flag(deployment, length)}"


def length_flag(deployment: Deployment, length: int) -> str:
    """``--max-model-len 8192``, by the engine's own name."""
    engine = f"{deployment.choice.engine.name}@{deployment.choice.version}"
    flag = flag_for(engine, "max_model_len") or "max_model_len"
    return f"--{flag.replace('_', '-')} {length}"


def own_length_line(found: Answer, longest: Longest | None) -> Screen:
    """The need of the model's own length, where the server is started for less or cannot take it."""
    if longest is None or longest.own is None or found.result.refusal is not None:
        return []
    own = f"{longest.own:,}"
    if longest.is_own:
        if found.deployment.chosen_length is None:
            return []
        said = f"The model's own {own} tokens would start too: one such request"
        return wrapped(f"{said} needs {size_words(longest.own_bytes)}.", indent=1, style="dim")
    text = f"The model's own {own} tokens"
    if longest.likely == longest.own:
        text += " may not start"
    else:
        text += " would not start"
    text += f": one such request needs {size_words(longest.own_bytes)}"
    if longest.likely and longest.likely != longest.own:
        text += f"; up to {longest.likely:,} starts"
    text += f", {longest.safe:,} safely" if longest.safe else ", no length safely"
    return wrapped(f"{text}.", indent=1, style="dim")


def gain_lines(found: Sequence[Gain]) -> Screen:
    """Requests that single changes would hold."""
    words = "; ".join(f"{gain.options} holds {gain.requests:,}" for gain in found)
    return wrapped(words, indent=1, first="change: ", style="dim") if words else []


def _bytes_sentence(result: SizeResult) -> Screen:
    """The bytes of the requests, where no memory is known that would hold them or not."""
    name = result.model.id
    if host := int(result.settings.get("host_kv_bytes") or 0):
        return _host_sentence(result, host)
    if result.total.kv_bytes == 0:
        said = f"{name} keeps nothing from one token to the next: 0 bytes of cache."
        return [styled(row, name, "bold") for row in wrapped(said)]
    number = result.request.count
    subject = "One request" if number == 1 else count(number, "request")
    gpus, (ranks, ranks_name) = gpus_of_request(result), request_ranks(result)
    where = "" if gpus == 1 else f" on each of {gpus} GPUs"
    if ranks > 1:
        where = f"{where} of one of {ranks} {ranks_name}" if where else f" on one of {ranks} {ranks_name}"
    amount = size_words(result.per_gpu.kv_bytes)
    verb = "takes" if number == 1 else "take"
    rows = wrapped(f"{subject} of {length_words(result)} to {name} {verb} {amount} of cache{where}.")
    return [styled(row, amount, "bold") for row in rows]


def _host_sentence(result: SizeResult, host: int) -> Screen:
    """No count: what host memory holds is not known unless somebody says how much there is."""
    subject = "One request" if result.request.count == 1 else count(result.request.count, "request")
    verb = "takes" if result.request.count == 1 else "take"
    on_gpu = f" and {size_words(result.per_gpu.kv_bytes)} of a GPU's" if result.per_gpu.kv_bytes else ""
    amount = size_words(host)
    rows = wrapped(
        f"{subject} of {length_words(result)} to {result.model.id} {verb} {amount} of host memory{on_gpu}."
    )
    return [styled(row, amount, "bold") for row in rows] + (
        [] if on_gpu else help_lines(("--host-memory 64GiB: how many requests so much holds",))
    )


def length_words(result: SizeResult) -> str:
    """``448 tokens``, with the encoder's where it has some, and what of them is text."""
    encoder = (
        f" (and {result.request.encoder_tokens:,} encoder tokens)" if result.request.encoder_tokens else ""
    )
    kinds = [
        f"{result.settings[f'{kind}_tokens']:,} of {word}"
        for kind, word in (("text", "text"), ("image", "images"), ("video", "video"), ("audio", "audio"))
        if f"{kind}_tokens" in result.settings
    ]
    parts = f" ({', '.join(kinds)})" if kinds else ""
    return count(result.request.tokens, "token") + encoder + parts
