"""Why the others were rejected, what nearly did it, what a step buys, and which input moves the answer most.

Everything here is computed by planning again with one thing changed; what is suggested was asked of the
engine before it is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from kvplan.engines.traits import traits_of
from kvplan.named import NamedTuple
from kvplan.planning.ask import FEWEST, REQUESTS, SEQS, Ask
from kvplan.planning.confirm import holds
from kvplan.planning.found import Found, Rejected, Searched
from kvplan.planning.quality import NAMED, kv_quality
from kvplan.planning.results import RULES, Reason, Sensitivity, Step, SuggestedFix
from kvplan.planning.search import search
from kvplan.planning.space import axes_of
from kvplan.plans.fleet import Offer
from kvplan.plans.plan import QUALITIES
from kvplan.plans.workload import Shape
from kvplan.record import replace
from kvplan.settings import with_setting


def reasons_of(searched: Searched) -> tuple[Reason, ...]:
    """One line for each reason, on which GPUs, with the candidate that came nearest: of equal ones the one
    with the most GPUs an engine (weights and cache are divided finest there). By how many were rejected, the
    rules that hold on every GPU last."""
    groups: dict[str, list[Rejected]] = {}
    for rejected in searched.rejected:
        groups.setdefault(rejected.why.code, []).append(rejected)
    found = []
    for code, members in groups.items():
        nearest = min(members, key=_near)
        gpus = tuple(dict.fromkeys(one.offer.gpu.slug for one in members if one.offer is not None))
        words = nearest.one.words() + ("" if nearest.offer is None else f" on {nearest.offer.gpu.slug}")
        found.append(Reason(code, nearest.why.message, gpus, words, sum(one.candidates for one in members)))
    return tuple(
        sorted(found, key=lambda one: (one.code in RULES, one.code not in _TIMES, -one.candidates, one.code))
    )


def _near(rejected: Rejected) -> tuple[int, int, int]:
    """Of candidates equally far the one of the most GPUs; where no distance is known, the plainest."""
    gpus = rejected.one.layout.gpus
    return rejected.why.far, -gpus if rejected.why.far else gpus, rejected.one.place


_TIMES = ("ttft", "tpot")
"""Reasons of candidates that hold the load, and are late."""


class _Change(NamedTuple):
    what: str
    flags: str
    ask: Ask


def suggested_fixes(ask: Ask, best: Found | None) -> tuple[SuggestedFix, ...]:
    """Changes with which fewer GPUs (or, where nothing does, these GPUs) serve the load."""
    if best is not None and best.gpus == 1:
        return ()
    base = replace(ask, objective=FEWEST)
    if best is not None:
        base = replace(base, offers=(best.offer,), max_gpus=best.gpus - 1)
    return _fixes(_changes(base, beside_best=best is not None))


def other_engines(asks: Iterable[Ask]) -> tuple[SuggestedFix, ...]:
    """Engines that serve the load, of those that were asked."""
    return _fixes(
        _Change(f"engine {ask.choice.engine.name}", f"--engine {ask.choice.engine.name}", ask)
        for ask in (replace(ask, objective=FEWEST) for ask in asks)
    )


def _fixes(changes: Iterable[_Change]) -> tuple[SuggestedFix, ...]:
    """The changes with which the load is served."""
    found = []
    for change in changes:
        answer = _first(change.ask)
        if answer is None:
            continue
        kind = f"{answer.gpus} × {answer.offer.gpu.slug}"
        then = f"{kind} ({answer.one.layout.words()})"
        flags = change.flags or f"--gpu {answer.gpus}x{answer.offer.gpu.slug}"
        found.append(SuggestedFix(change.what, flags, then, answer.gpus))
    return tuple(found)


def _first(ask: Ask) -> Found | None:
    """The best answer, where the engine itself confirms it."""
    found = search(ask, wanted=1).found
    return found[0] if found and holds(ask, found[0]) else None


def _changes(ask: Ask, *, beside_best: bool) -> Iterator[_Change]:
    """Possible changes, one thing at a time: first those that cost nothing. beside_best: something does
    already, with more GPUs."""
    yield from _share_change(ask)
    held = _most_held(ask)
    if 0 < held < ask.requests and not ask.paced:
        short = ask.requests - held
        words = "one request short" if short == 1 else f"{held:,} of {ask.requests:,} requests"
        also = tuple(replace(one, requests=held) for one in ask.also)
        yield _Change(words, f"--requests {held}", replace(ask, requests=held, also=also))
    shorter = _shorter(ask)
    if shorter is not None:
        yield shorter
    own = ask.longest
    if min(ask.lengths) > own:
        yield _Change(f"max_model_len {own:,}", f"--max-model-len {own}", replace(ask, lengths=(own,)))
    if len(set(ask.seqs)) == 1 and axes_of(ask).seqs:
        changed = replace(ask, seqs=SEQS)
        answer = _first(changed)
        if answer is not None:
            seqs = answer.max_num_seqs
            yield _Change(f"max_num_seqs {seqs}", f"--max-num-seqs {seqs}", replace(ask, seqs=(seqs,)))
    for policy in QUALITIES[QUALITIES.index(ask.quality) + 1 :]:
        yield _Change(f"quality {policy}", f"--quality {policy}", replace(ask, quality=policy))
    if ask.safe:
        yield _Change("the likely pool", "--pool likely", replace(ask, safe=False))
    if not beside_best and (
        ask.max_gpus is not None or any(offer.available is not None for offer in ask.offers)
    ):
        free = tuple(replace(offer, available=None) for offer in ask.offers)
        yield _Change("more GPUs", "", replace(ask, max_gpus=None, offers=free))


def _share_change(ask: Ask) -> Iterator[_Change]:
    entry = traits_of(ask.choice.engine.name).memory_share
    if entry is None:
        return
    name, flag, values = entry.setting, entry.flag, entry.tried
    own = ask.base.gpu_memory_utilization if name == "gpu_memory_utilization" else None
    for value in values:
        if own is not None and Fraction(value) <= own:
            continue
        changed = replace(ask, base=with_setting(ask.base, name, Fraction(value)))
        if search(changed, wanted=1).found:
            yield _Change(f"{name} {value}", f"{flag} {value}", changed)
            return


def _most_held(ask: Ask) -> int:
    """The most requests that the GPUs at hand hold; 0 where their number is not limited."""
    if any(ask.limit(offer) is None for offer in ask.offers):
        return 0
    found = search(replace(ask, objective=REQUESTS, requests=1, paced=False), wanted=1).found
    return found[0].requests if found else 0


def _shorter(ask: Ask) -> _Change | None:
    """Three quarters, a half or a quarter of the length, for requests of one shape."""
    if len(ask.shapes) > 1:
        return None
    shape = ask.shapes[0]
    for numerator in (3, 2, 1):
        prompt = shape.input_tokens * numerator // 4
        answer = shape.output_tokens * numerator // 4
        if prompt + answer < 1:
            return None
        less = Shape(prompt, answer)
        changed = replace(ask, shapes=(less,), lengths=(less.tokens,), also=())
        if search(changed, wanted=1).found:
            return _Change(f"requests of {less.tokens:,} tokens", f"--tokens {less.tokens}", changed)
    return None


def steps_of(ask: Ask, best: Found) -> tuple[Step, ...]:
    """The load that each number of GPUs of this kind holds, and that each format holds on as many GPUs."""
    more = replace(
        ask, offers=(_unlimited(best.offer),), objective=REQUESTS, requests=1, max_gpus=best.gpus, also=(),
        paced=False,
    )  # fmt: skip
    if best.one.layout.pp == 1:  # engines without stages are compared with their like
        more = replace(more, pp=(1,))
    found: list[Step] = []
    one = best.one.layout.gpus
    counts = sorted({best.gpus // 2, best.gpus - one, best.gpus, best.gpus + one, best.gpus * 2} - {0})
    for count in counts:
        answers = search(replace(more, max_gpus=count), wanted=1).found
        held = answers[0].requests if answers else 0
        top = answers[0].one if answers else None
        label = f"{top.variant.label}, {top.kv} cache, {top.layout.words()}" if top else "does not fit"
        found.append(Step("gpus", label, count, held, top.tier if top else ""))
    chosen = best.one
    words = ask.kv_dtypes or _words(ask)
    caches = replace(more, quality=QUALITIES[-1], variants=(chosen.variant,), kv_dtypes=words)
    weights = replace(more, quality=QUALITIES[-1], kv_dtypes=(chosen.kv,))
    seen: dict[tuple[str, str], Found] = {}
    for answer in (*search(caches, wanted=0).found, *search(weights, wanted=0).found):
        seen.setdefault((answer.one.variant.label, answer.one.kv), answer)
    for answer in sorted(seen.values(), key=lambda each: (each.one.quality_rank, each.requests)):
        label = f"{answer.one.variant.label} weights, {answer.one.kv} cache"
        found.append(Step("format", label, best.gpus, answer.requests, answer.one.tier))
    return tuple(found)


def _words(ask: Ask) -> tuple[str, ...]:
    """The engine's formats but for those that are taken by name alone."""
    model = ask.variants[0].model
    return tuple(
        word for word in traits_of(ask.choice.engine.name).kv_formats if kv_quality(model, word).tier != NAMED
    )


def _unlimited(offer: Offer) -> Offer:
    return replace(offer, available=None)


def sensitivity_of(ask: Ask, best: Found) -> tuple[Sensitivity, ...]:
    """Requests that the plan's GPUs hold when one input changes, the largest effect first."""
    layout = best.one.layout
    same = replace(
        ask,
        objective=FEWEST,
        variants=(best.one.variant,),
        kv_dtypes=(best.one.kv,),
        offers=(_unlimited(best.offer),),
        lengths=(best.max_model_len,),
        tp=(layout.tp,),
        pp=(layout.pp,),
        dp=(layout.dp,) if layout.dp > 1 else None,
        dcp=(layout.dcp,),
        adp=(layout.adp,),
        expert_parallel=layout.ep,
        tpot=None,
        ttft=None,
        paced=False,
        requests=best.per_engine * best.engines,
    )
    now = _held_by(same, best.gpus)
    effects = []
    for name, change, changed in _inputs(same, best):
        held = now if name == "requests" else _held_by(changed, best.gpus)
        if name == "KV format" and not held:
            continue  # the engine does not take it here
        if name == "shared prefix" and held == now:
            continue  # the engine shares nothing here
        needed = search(replace(changed, objective=FEWEST, max_gpus=None), wanted=1).found
        effects.append(Sensitivity(name, change, held, needed[0].gpus if needed else None))
    scale = max(now, 1)

    def moved(effect: Sensitivity) -> tuple[Fraction, Fraction]:
        gpus = Fraction(effect.gpus or 4 * best.gpus, best.gpus)
        ratio = Fraction(max(effect.requests, 1), scale)
        return max(ratio, 1 / ratio), max(gpus, 1 / gpus)

    return tuple(sorted(effects, key=moved, reverse=True))


def _held_by(ask: Ask, gpus: int) -> int:
    found = search(replace(ask, objective=REQUESTS, requests=1, max_gpus=gpus), wanted=1).found
    return found[0].requests if found else 0


def _sharing_inputs(ask: Ask) -> Iterator[tuple[str, str, Ask]]:
    """Prompts with half of them in common; or nothing in common, where the load says that they have."""
    prompt = max(shape.input_tokens for shape in ask.shapes)
    if ask.prefix:
        yield "shared prefix", "none", replace(ask, prefix=0)
    elif prompt > 1:
        yield "shared prefix", "half of the prompt", replace(ask, prefix=prompt // 2)


def _inputs(ask: Ask, best: Found) -> Iterator[tuple[str, str, Ask]]:
    for label, up, down in (("twice", 2, 1), ("half", 1, 2)):
        changed = ask.scaled(up, down)
        own = best.one.variant.model.max_model_len
        if own is None or changed.longest <= own:
            yield "length", f"{label} as long", changed
        requests = max(1, ask.requests * up // down)
        if requests != ask.requests:
            also = tuple(replace(one, requests=max(1, one.requests * up // down)) for one in ask.also)
            yield "requests", f"{label} as many", replace(ask, requests=requests, also=also)
    yield from _sharing_inputs(ask)
    if axes_of(ask).seqs:
        seqs = best.max_num_seqs * 2  # half as many hold half as many: that needs no line
        yield "max_num_seqs", f"twice, {seqs:,}", replace(ask, seqs=(seqs,))
    for word in _words(ask):
        if word != best.one.kv and word != "auto":
            yield "KV format", word, replace(ask, kv_dtypes=(word,))
            break
    entry = traits_of(ask.choice.engine.name).memory_share
    if entry is not None and entry[0] == "gpu_memory_utilization":
        for value in ("0.85", "0.95"):
            if Fraction(value) != ask.base.gpu_memory_utilization:
                yield (
                    "utilisation",
                    value,
                    replace(ask, base=with_setting(ask.base, entry[0], Fraction(value))),
                )
