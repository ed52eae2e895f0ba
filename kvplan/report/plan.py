"""The screen of ``kvplan plan``: the answer in a sentence, the options, why, what more buys, what next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from kvplan.planning.ask import CONTEXT
from kvplan.planning.results import Option, PlanResult, Reason
from kvplan.plans.plan import QUALITIES
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, shorten, table, wrapped
from kvplan.report.words import command, count, engine_title
from kvplan.units import gib

_WHY = {
    "weights": "weights alone do not fit",
    "no-memory-for-cache": "nothing is left for the cache",
    "not-enough-memory": "not even one request of max_model_len fits",
    "pool-too-small": "not one request fits",
    "too-few-gpus": "too few GPUs",
    "max-gpus": "one engine takes more GPUs than there are",
    "quality": "the quality policy",
    "heads": "heads do not divide",
    "experts": "experts do not divide",
    "weights-format": "the GPU does not run these weights",
    "context-parallel": "not known there",
    "layers": "fewer layers than stages",
    "price": "no price",
    "engine-gpu": "the engine's rules are not known there",
    "no-memory": "memory not published",
    "no-weights": "weights not known",
    "cannot-start": "the engine refuses",
    "unsupported-dtype": "the engine refuses",
    "unsupported-model": "the engine has no class for it",
    "tensor-parallel": "heads do not divide",
    "cannot-shard": "a matrix does not divide",
    "tpot": "too slow",
    "ttft": "first token too late",
}
"""What a reason's code means, in a few words."""
_PLAIN = ("auto", "bfloat16", "float16", "float32", "f16")
_SHOWN_REASONS = 7
_MEASURES = {
    "gpus": "GPUs", "cost_per_hour": "cost", "requests": "requests", "max_model_len": "length", "tpot": "TPOT"
}  # fmt: skip
_SHOWN_GPUS = 1
_SHOWN_EFFECTS = 7
_SHOWN_FRONT = 20
_GPU_WIDTH = 22


def plan_screen(result: PlanResult, *, typed: Sequence[str]) -> Screen:
    """The whole answer. typed: the words of the command line after ``kvplan plan``."""
    screen = _sentence(result)
    if result.options:
        screen += [BLANK, *_options(result.options, result.currency)]
        screen += [BLANK, *_serve(result)]
    if result.pareto:
        title = "What no other beats in " + ", ".join(_MEASURES[name] for name in result.pareto_by)
        screen += [BLANK, line(Span(title, "bold"), indent=1)]
        screen += _options(result.pareto[:_SHOWN_FRONT], result.currency, lengths=True)
        left = len(result.pareto) - _SHOWN_FRONT
        if left > 0:
            screen.append(line(Span(f"and {left:,} more: --json", "dim"), indent=2))
    screen += _levers(result)
    screen += _ways_out(result)
    screen += _steps(result)
    screen += _sensitivity(result)
    screen += [BLANK, *_reasons(result)]
    warnings = (*result.warnings, *(result.options[0].warnings if result.options else ()))
    if warnings:
        screen.append(BLANK)
        for text in dict.fromkeys(warnings):
            screen += wrapped(text, indent=1, first="warning: ", style="warn")
    screen += [BLANK, *_sources(result)]
    return [*screen, *_next(result, typed)]


def load_words(result: PlanResult) -> str:
    """``32 requests of 8,192 tokens``."""
    if len(result.shapes) == 1:
        return f"{count(result.requests, 'request')} of {result.shapes[0].tokens:,} tokens"
    longest = max(shape.tokens for shape in result.shapes)
    return f"{count(result.requests, 'request')} of the mix (longest {longest:,} tokens)"


def _sentence(result: PlanResult) -> Screen:
    name = result.model.id.rpartition("/")[2]
    if not result.options:
        text = f"Nothing that was tried serves {load_words(result)} of {name}."
        return wrapped(text, style="bad")
    best = result.options[0]
    kind = f"{best.gpus} × {best.gpu}" + (f" ({best.where})" if best.where else "")
    what = "serve" if best.gpus > 1 else "serves"
    cost = "" if best.cost_per_hour is None else f", {money(best.cost_per_hour, result.currency)} an hour"
    length = f", max_model_len {best.max_model_len:,}" if result.objective == CONTEXT else ""
    return wrapped(f"{name}: {kind} {what} {load_words(result)}{length}{cost}.", style="good")


def money(amount: Fraction, currency: str) -> str:
    """Two decimals, rounded half up."""
    cents = (amount.numerator * 200 + amount.denominator) // (2 * amount.denominator)
    return f"{cents // 100:,}.{cents % 100:02d}" + (f" {currency}" if currency else "")


def _options(options: Sequence[Option], currency: str, *, lengths: bool = False) -> Screen:
    priced = any(option.cost_per_hour is not None for option in options)
    timed = any(option.speed is not None for option in options)
    heads: list[Piece] = ["GPUs", "kind", "weights", "cache", "layout", "holds"]
    rows: list[list[Piece]] = [[*(Span(str(head), "dim") for head in heads)]]
    if priced:
        rows[0].append(Span("an hour", "dim"))
    if timed:
        rows[0].append(Span("TPOT", "dim"))
    if lengths:
        rows[0].append(Span("tokens each", "dim"))
    for place, option in enumerate(options):
        style = "bold" if place == 0 and not lengths else ""
        layout = option.layout() + (f" × {option.replicas}" if option.replicas > 1 else "")
        row: list[Piece] = [
            Span(f"{option.gpus:,}", style),
            Span(shorten(option.gpu, _GPU_WIDTH), style),
            Span(option.weights, style),
            Span(_cache(option), style),
            Span(layout, style),
            Span(f"{option.requests:,}", style),
        ]
        if priced:
            cost = option.cost_per_hour
            row.append("" if cost is None else money(cost, currency))
        if timed:
            row.append("" if option.speed is None else f"{option.speed.tpot[1] * 1000:,.0f} ms")
        if lengths:
            row.append(f"{option.max_model_len:,}")
        rows.append(row)
    return table(rows, "rllllr" + "r" * (priced + timed + lengths), gap="  ")


def _cache(option: Option) -> str:
    """The word for the cache's dtype; what ``auto`` comes to where that is not 16 bit."""
    if option.kv_cache_dtype != "auto" or option.kv_format in _PLAIN:
        return option.kv_cache_dtype
    return f"auto {option.kv_format.partition('_')[0]}"


def _serve(result: PlanResult) -> Screen:
    best = result.options[0]
    engines = "one engine" if best.replicas == 1 else f"each of {best.replicas:,} engines"
    screen = wrapped(f"{best.model_id}, {engines}:", indent=1)
    screen += wrapped(" ".join(flags_of(dict(best.serve))), indent=2, hang=2)
    pool = f"pool {gib(best.pool_bytes)} a GPU"
    safely = gib(best.pool_low_bytes) if best.pool_low_bytes else "nothing: see --pool safe"
    pool += f", safely {safely}"
    screen += wrapped(f"{pool}; quality {best.quality}", indent=1, style="dim")
    for text in (*best.citations, *best.notes):
        screen += wrapped(text, indent=1, first="- ", style="dim")
    if best.speed is not None:
        low, likely, high = (value * 1000 for value in best.speed.tpot)
        first, at, last = (value * 1000 for value in best.speed.ttft)
        million = best.cost_per_million()
        cost = "" if million is None else f", {million[1]:,.2f} {result.currency} a million".rstrip()
        screen += wrapped(
            f"estimate: TPOT {likely:,.0f} ms ({low:,.0f}-{high:,.0f}), TTFT {at:,.0f} ms"
            f" ({first:,.0f}-{last:,.0f}), {best.speed.tokens_per_second[1]:,.0f} tokens/s a replica{cost}",
            indent=1,
            style="dim",
        )
    return screen


def flags_of(serve: Mapping[str, object]) -> list[str]:
    """``--max-model-len 8192`` for each value; a switch that is on alone."""
    words = []
    for name, value in serve.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False:
            shown = f"{float(value):g}" if isinstance(value, Fraction) else str(value)
            words.append(f"{flag} {shown}")
    return words


def _ways_out(result: PlanResult) -> Screen:
    if not result.ways_out:
        return []
    title = "It would do with" if not result.options else "Fewer GPUs would do with"
    rows: list[list[Piece]] = [[way.flags, way.then] for way in result.ways_out]
    return [BLANK, line(Span(title, "bold"), indent=1), *table(rows, "ll", indent=2)]


def _levers(result: PlanResult) -> Screen:
    """Those that would do something here, a line each, and the others by name."""
    if not result.levers:
        return []
    screen: Screen = [BLANK, line(Span("Memory levers, of one engine", "bold"), indent=1)]
    for lever in result.levers:
        if lever.applies:
            flag = f" (--{lever.setting.replace('_', '-')})" if lever.setting else ""
            screen += wrapped(f"{lever.name}: {lever.summary}{flag}", indent=2, hang=2)
    idle = [lever.name for lever in result.levers if not lever.applies]
    if idle:
        screen += wrapped(
            f"nothing here by {', '.join(idle)}: --json says why", indent=2, hang=2, style="dim"
        )
    return screen


def _steps(result: PlanResult) -> Screen:
    screen: Screen = []
    numbers = [step for step in result.steps if step.what == "gpus"]
    if len(numbers) > 1:
        rows: list[list[Piece]] = [
            [count(step.gpus, "GPU"), f"{step.requests:,}", Span(step.label, "dim")] for step in numbers
        ]
        title = line(Span("What GPUs of this kind hold, at most", "bold"), indent=1)
        screen += [BLANK, title, *table(rows, "rrl", indent=2)]
    formats = [step for step in result.steps if step.what == "format"]
    allowed = QUALITIES[: QUALITIES.index(result.quality) + 1]
    kept = [step for step in formats if step.quality in allowed]
    others = [step for step in formats if step.quality not in allowed]
    if len(formats) > 1:
        rows = [[step.label, f"{step.requests:,}", Span(step.quality, "dim")] for step in kept]
        title = line(Span("What formats hold on them", "bold"), indent=1)
        screen += [BLANK, title, *table(rows, "lrl", indent=2)]
    if others:
        most = max(others, key=lambda step: step.requests)
        text = f"up to {most.requests:,} with --quality {most.quality} ({most.label})"
        screen += wrapped(text, indent=2, style="dim")
    return screen


def _sensitivity(result: PlanResult) -> Screen:
    if not result.sensitivity:
        return []
    rows: list[list[Piece]] = [["", Span("holds", "dim"), Span("GPUs needed", "dim")]]
    rows += [
        [
            f"{effect.name}: {effect.change}",
            f"{effect.requests:,}",
            "none does" if effect.gpus is None else f"{effect.gpus:,}",
        ]
        for effect in result.sensitivity[:_SHOWN_EFFECTS]
    ]
    return [BLANK, line(Span("What moves the answer most", "bold"), indent=1), *table(rows, "lrr", indent=2)]


def _reasons(result: PlanResult) -> Screen:
    judged = f"{result.considered:,} candidates, {result.judged:,} judged"
    screen = [line(Span("Why others fell", "bold"), Span(f"   ({judged})", "dim"), indent=1)]
    for reason in result.reasons[:_SHOWN_REASONS]:
        screen += wrapped(_reason(reason), indent=2, hang=2)
    left = len(result.reasons) - _SHOWN_REASONS
    if left > 0:
        screen.append(line(Span(f"and {count(left, 'reason')} more: --json", "dim"), indent=2))
    return screen


def _reason(reason: Reason) -> str:
    """``weights alone do not fit (a10-24gb and 23 more): 61.02 GiB …``; of one GPU the nearest candidate."""
    # One GPU among many is not worth its way out; weights that nobody knows are.
    message = reason.message.partition(". Ways out:")[0] if len(reason.gpus) > 1 else reason.message
    head = _WHY.get(reason.code, reason.code.replace("-", " "))
    if len(reason.gpus) > 1:
        shown = ", ".join(reason.gpus[:_SHOWN_GPUS])
        more = len(reason.gpus) - _SHOWN_GPUS
        return f"{head} ({shown}{f' and {more} more' if more > 0 else ''}): {message}"
    if reason.code == "quality":
        return f"{head}: {message}"
    nearest = reason.example.removesuffix(f" on {reason.gpus[0]}") if reason.gpus else reason.example
    return f"{head} ({nearest}): {message}"


def _sources(result: PlanResult) -> Screen:
    return wrapped(
        f"{engine_title(result.engine)}; objective {result.objective}, quality {result.quality};"
        f" model {result.model.source}",
        indent=1,
        style="dim",
        first="rules:  ",
    )


def _next(result: PlanResult, typed: Sequence[str]) -> Screen:
    screen: Screen = []
    if result.options:
        best = result.options[0]
        words = ["kvplan", "size", best.model_id, "--gpu", best.gpu]
        one = best.settings
        for flag, size in (("--tp", one.tensor_parallel_size), ("--pp", one.pipeline_parallel_size)):
            words += [flag, str(size)] if size > 1 else []
        screen += wrapped(command(*words), indent=1, style="dim", first="look:   ")
        screen += wrapped(
            command("kvplan", "plan", *typed, "--write", "plan.yaml"), indent=1, style="dim", first="keep:   "
        )
    screen += wrapped(
        "--json, --markdown, --levers, --pareto, --quality aggressive",
        indent=1,
        style="dim",
        first="more:   ",
    )
    return screen
