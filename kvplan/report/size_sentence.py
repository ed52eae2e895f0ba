"""The answer of ``kvplan size`` as a sentence, with what would make it fit."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.api.fits import Fits
from kvplan.questions import MAX_REQUESTS, Verdict
from kvplan.questions.fixes import SuggestedFixes
from kvplan.report.layout import Screen, wrapped
from kvplan.report.notes import help_lines, styled
from kvplan.report.words import (
    count,
    engine_title,
    gpus_in_replica,
    gpus_of_request,
    request_ranks,
    size_words,
    ways_words,
)
from kvplan.results import Budget, SizeResult
from kvplan.units import gib


def size_sentence(
    result: SizeResult,
    verdict: Verdict | None,
    *,
    memory: int | None = None,
    ways: SuggestedFixes | None = None,
    fits: Fits | None = None,
) -> Screen:
    """The answer, then what would make it fit: nearest to what was asked first.

    memory: bytes per GPU. ways: what would make it fit, where it does not. fits: what a GPU's pool holds.
    """
    words = ways_words(ways, result) if ways is not None else ()
    if verdict is not None and result.refusal is not None:
        may = fits is not None and fits.may_start
        answer = "Likely no:" if may else "No:"
        most = f", {gib(_most(result))} at most: it may start" if may else ""
        said = f"would not serve {result.model.id}: {result.refusal.message}{most}"
        head = wrapped(f"{engine_title(result.engine)} {said}", first=f"{answer} ")
        first = 1 if ways is not None and ways.max_model_len is not None else 0
        helps = _once((*words[:first], *result.refusal.help, *words[first:]))
        return [styled(head[0], answer, "bad"), *head[1:], *help_lines(helps)]
    safe = safe_requests(result, fits)
    shorter = None if fits is None else fits.shorter
    headline = _headline(result, verdict, memory, safe, shorter)
    # Where the likely pool starts and the safe one does not, the engine's own reason says what would.
    never = fits.never_safely if fits is not None and safe == 0 else None
    if never is not None:
        headline += wrapped(f"In the safe pool {engine_title(result.engine)} refuses: {never.message}.")
        words = (*never.help[:1], *words)
    return [*headline, *help_lines(words)]


def _once(helps: Iterable[str]) -> tuple[str, ...]:
    """Each way once, the first time that it is said."""
    found: dict[str, str] = {}
    for text in helps:
        found.setdefault(text.partition(": ")[0], text)
    return tuple(found.values())


def _most(result: SizeResult) -> int:
    """What the budget may leave to the cache at most."""
    return result.budget.kv_pool_high_bytes if result.budget is not None else 0


def safe_requests(result: SizeResult, fits: Fits | None) -> int | None:
    """Requests of the asked length in the safe pool; None where that was not counted."""
    rungs = () if fits is None or result.refusal is not None else fits.rungs
    return next((one.safe for one in rungs if one.tokens == result.request.tokens), None)


def _headline(
    result: SizeResult, verdict: Verdict | None, memory: int | None, safe: int | None, shorter: int | None
) -> Screen:
    """shorter: the length that the engine takes by itself in the safe pool."""
    name = result.model.id
    if verdict is not None and result.budget is not None and result.pool is not None:
        return _gpu_sentence(result, verdict, result.budget, safe, shorter)
    if memory is None and result.pool is not None:
        memory = result.pool.bytes
    if verdict is not None and memory is not None:
        return _fit_sentence(result, verdict, memory)
    if host := int(result.settings.get("host_kv_bytes") or 0):
        return _host_sentence(result, host)
    if result.total.kv_bytes == 0:
        said = f"{name} keeps nothing from one token to the next: 0 bytes of cache."
        return [styled(row, name, "bold") for row in wrapped(said)]
    subject = "One request" if result.request.count == 1 else count(result.request.count, "request")
    verb = "takes" if result.request.count == 1 else "take"
    gpus, (ranks, ranks_name) = gpus_of_request(result), request_ranks(result)
    where = "" if gpus == 1 else f" on each of {gpus} GPUs"
    if ranks > 1:
        where = f"{where} of one of {ranks} {ranks_name}" if where else f" on one of {ranks} {ranks_name}"
    amount = size_words(result.per_gpu.kv_bytes)
    rows = wrapped(f"{subject} of {_length(result)} to {name} {verb} {amount} of cache{where}.")
    return [styled(row, amount, "bold") for row in rows]


def _host_sentence(result: SizeResult, host: int) -> Screen:
    """No count: what host memory holds is not known unless somebody says how much there is."""
    subject = "One request" if result.request.count == 1 else count(result.request.count, "request")
    verb = "takes" if result.request.count == 1 else "take"
    on_gpu = f" and {size_words(result.per_gpu.kv_bytes)} of a GPU's" if result.per_gpu.kv_bytes else ""
    amount = size_words(host)
    rows = wrapped(
        f"{subject} of {_length(result)} to {result.model.id} {verb} {amount} of host memory{on_gpu}."
    )
    return [styled(row, amount, "bold") for row in rows] + (
        [] if on_gpu else help_lines(("--host-memory 64GiB: how many requests so much holds",))
    )


def _length(result: SizeResult) -> str:
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


def _fit_sentence(result: SizeResult, verdict: Verdict, memory: int) -> Screen:
    gpus, (ranks, ranks_name) = gpus_of_request(result), request_ranks(result)
    where = "of cache" if gpus == 1 else f"of cache on each of {gpus} GPUs"
    each = f" on each of {ranks} {ranks_name}" if ranks > 1 else ""
    tokens = _length(result)
    holds = (
        "any number of requests"
        if verdict.max_requests >= MAX_REQUESTS
        else count(verdict.max_requests, "request")
    )
    verb = "hold" if verdict.fits else "hold only"
    if verdict.max_requests == 0:
        verb, holds = "hold", "no request"
    text = f"{size_words(memory)} {where} {verb} {holds} of {tokens} to {result.model.id}{each}."
    if not verdict.fits:
        text = f"No: {text[0].upper()}{text[1:]}" if result.request.count > 1 else f"No: {text}"
    style = "good" if verdict.fits else "bad"
    mark = holds if verdict.fits else "No:"
    return [styled(row, mark, style) for row in wrapped(text)]


def _gpu_sentence(
    result: SizeResult, verdict: Verdict, budget: Budget, safe: int | None, shorter: int | None
) -> Screen:
    """``llama on 2 × h100 likely holds 7 requests of 32,768 tokens, safely 6.``"""
    holds = count(verdict.max_requests, "request") if verdict.max_requests else "no request"
    only = "" if verdict.fits or not verdict.max_requests else " only"
    ranks, ranks_name = request_ranks(result)
    gpus = gpus_in_replica(result)
    if ranks_name.startswith("data"):
        gpus *= ranks
    each = f" on each of {ranks} {ranks_name}" if ranks > 1 else ""
    if each and verdict.max_requests:
        each += f", {verdict.max_requests * ranks:,} together"
    sure, safely = _safely(verdict.max_requests, safe, shorter, apart=bool(each))
    name = f"{result.model.id} on {result.settings.get('unequal_gpus') or f'{gpus} × {budget.gpu}'}"
    text = f"{name} {sure}holds{only} {holds} of {_length(result)}{each}{safely}{_elsewhere(result)}."
    if ranks > 1 and not verdict.fits and result.request.count > 1:
        text += f" {result.request.count:,} were asked of one rank."
    text = text if verdict.fits else f"No: {text}"
    certain = safe is None or safe >= result.request.count
    mark, style = (holds, "good" if certain else "warn") if verdict.fits else ("No:", "bad")
    return [styled(row, mark, style) for row in wrapped(text)]


def _elsewhere(result: SizeResult) -> str:
    """What of the model lies in host memory."""
    hosted, on_gpu = (int(result.settings.get(f"layers_on_{place}") or 0) for place in ("host", "gpu"))
    experts = int(result.settings.get("expert_layers_on_host") or 0)
    found = [f"{hosted} of {hosted + on_gpu} layers"] if hosted else []
    found += [f"the experts of {experts} layers"] if experts else []
    return f"; {' and '.join(found)} in host memory" if found else ""


def _safely(counted: int, safe: int | None, shorter: int | None, *, apart: bool) -> tuple[str, str]:
    """What stands before ``holds`` and after the number: with which pool it was counted, and the other's."""
    if safe is None or not counted:
        return "", ""
    join = ";" if apart else ","
    if safe == 0:
        else_ = f"may start with max_model_len {shorter:,}" if shorter else "may not start"
        return "likely ", f"{join} safely none: it {else_}"
    if safe == counted:
        return "", f"{join} likely and safely"
    return "likely ", f"{join} safely {safe:,}"
