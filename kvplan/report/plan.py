"""The screen of ``kvplan plan``: the answer in a sentence, the options, why, what more buys, what next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from kvplan.planning.ask import CONTEXT
from kvplan.planning.results import PlanResult, Reason
from kvplan.plans.plan import QUALITIES, SAFE
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.plan_table import WHY, beside, checkpoints, money, options_table
from kvplan.report.words import command, count, engine_title
from kvplan.results import EngineRef
from kvplan.units import gib

_SHOWN_REASONS = 7
_MEASURES = {
    "gpus": "GPUs", "cost_per_hour": "cost", "requests": "requests", "max_model_len": "length", "tpot": "TPOT"
}  # fmt: skip
_SHOWN_GPUS = 1
_RULES = ("quality", "heads", "experts", "layers")
"""Reasons that hold on every GPU: said where nothing serves."""
_SHOWN_EFFECTS = 7
_SHOWN_FRONT = 20


def plan_screen(result: PlanResult, *, typed: Sequence[str], look: Sequence[str] = ()) -> Screen:
    """The whole answer. typed: the words of the command line after ``kvplan plan``; look: the command that
    says more about the best."""
    screen = _sentence(result)
    if result.options:
        screen += [BLANK, *options_table(result.options, result.currency)]
        screen += beside(result)
        screen += [BLANK, *_serve(result)]
    if result.pareto:
        title = "What no other beats in " + ", ".join(_MEASURES[name] for name in result.pareto_by)
        screen += [BLANK, line(Span(title, "bold"), indent=1)]
        screen += options_table(result.pareto[:_SHOWN_FRONT], result.currency, lengths=True)
        screen += checkpoints(result.pareto[:_SHOWN_FRONT])
        left = len(result.pareto) - _SHOWN_FRONT
        if left > 0:
            screen.append(line(Span(f"and {left:,} more: --json", "dim"), indent=2))
    screen += _levers(result)
    screen += _ways_out(result)
    screen += _steps(result)
    screen += _sensitivity(result)
    screen += _reasons(result)
    warnings = (*result.warnings, *(result.options[0].warnings if result.options else ()))
    if warnings:
        screen.append(BLANK)
        for text in dict.fromkeys(warnings):
            screen += wrapped(text, indent=1, first="warning: ", style="warn")
    screen += [BLANK, *_sources(result)]
    return [*screen, *_next(result, typed, look)]


def load_words(result: PlanResult) -> str:
    """``32 requests of 8,192 tokens``."""
    also = "".join(
        f", and {count(one.requests, 'request')} of {one.shape.tokens:,} tokens" for one in result.also
    )
    if len(result.shapes) == 1:
        return f"{count(result.requests, 'request')} of {result.shapes[0].tokens:,} tokens{also}"
    longest = max(shape.tokens for shape in result.shapes)
    return f"{count(result.requests, 'request')} of the mix (longest {longest:,} tokens){also}"


def _sentence(result: PlanResult) -> Screen:
    name = result.model.id.rpartition("/")[2]
    if not result.options:
        text = f"Nothing that was tried serves {load_words(result)} of {name}."
        return wrapped(text, style="bad")
    best = result.options[0]
    kind = f"{best.gpus} × {best.gpu}" + (f" ({best.where})" if best.where else "")
    cost = "" if best.cost_per_hour is None else f", {money(best.cost_per_hour, result.currency)} an hour"
    length = f", max_model_len {best.max_model_len:,}" if result.objective == CONTEXT else ""
    held = f"{best.requests:,} likely, {best.safe_requests:,} safe"
    asked = f"{load_words(result)}{length}{cost}"
    if best.safe_requests >= result.requests:
        what = "serve" if best.gpus > 1 else "serves"
        return wrapped(f"{name}: {kind} {what} {asked} ({held}).", style="good")
    if best.safe_requests:
        return wrapped(f"{name}: {kind} may hold {asked}: {held}.", style="warn")
    return wrapped(f"{name}: {kind} may hold {asked}, or may not start: {held}.", style="warn")


def _serve(result: PlanResult) -> Screen:
    best = result.options[0]
    engines = "one engine" if best.replicas == 1 else f"each of {best.replicas:,} engines"
    screen = wrapped(f"{best.model_id}, {engines}:", indent=1)
    screen += wrapped(" ".join(flags_of(dict(best.serve))), indent=2, hang=2)
    pool = f"pool {gib(best.pool_bytes)} a GPU"
    pool += f", safely {gib(best.pool_low_bytes) if best.pool_low_bytes else 'nothing: it may not start'}"
    screen += wrapped(f"{pool}; quality {best.quality}", indent=1, style="dim")
    for text in (*best.citations, *best.notes):
        screen += wrapped(text, indent=1, first="- ", style="dim")
    if best.speed is not None:
        low, likely, high = (value * 1000 for value in best.speed.tpot)
        first, at, last = (value * 1000 for value in best.speed.ttft)
        million = best.cost_per_million()
        cost = "" if million is None else f", {million[1]:,.2f} {result.currency} a million".rstrip()
        screen += wrapped(
            f"estimate for {_split(result)}: TPOT {likely:,.0f} ms ({low:,.0f}-{high:,.0f}),"
            f" TTFT {at:,.0f} ms ({first:,.0f}-{last:,.0f}),"
            f" {best.speed.tokens_per_second[1]:,.0f} tokens/s a replica{cost}",
            indent=1,
            style="dim",
        )
    return screen


def _split(result: PlanResult) -> str:
    """The prompt and the answer that speed is estimated with: of a mix the mean ones."""
    total = sum(shape.weight for shape in result.shapes)
    prompt = -(-sum(shape.input_tokens * shape.weight for shape in result.shapes) // total)
    answer = -(-sum(shape.output_tokens * shape.weight for shape in result.shapes) // total)
    mean = "" if len(result.shapes) == 1 else " on average"
    return f"prompts of {prompt:,} and answers of {answer:,} tokens{mean}"


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
        title = line(Span(f"What GPUs of this kind hold, {_pool(result)}", "bold"), indent=1)
        screen += [BLANK, title, *table(rows, "rrl", indent=2)]
    formats = [step for step in result.steps if step.what == "format"]
    allowed = QUALITIES[: QUALITIES.index(result.quality) + 1]
    kept = [step for step in formats if step.quality in allowed]
    others = [step for step in formats if step.quality not in allowed]
    if len(formats) > 1:
        rows = [[step.label, f"{step.requests:,}", Span(step.quality, "dim")] for step in kept]
        title = line(Span(f"What formats hold on them, {_pool(result)}", "bold"), indent=1)
        screen += [BLANK, title, *table(rows, "lrl", indent=2)]
    if others:
        most = max(others, key=lambda step: step.requests)
        text = f"up to {most.requests:,} with --quality {most.quality} ({most.label})"
        screen += wrapped(text, indent=2, style="dim")
    return screen


def _pool(result: PlanResult) -> str:
    """By which figure of the pool these are counted: the one that the plan is made by."""
    return "safely" if result.pool == SAFE else "likely"


def _sensitivity(result: PlanResult) -> Screen:
    if not result.sensitivity:
        return []
    rows: list[list[Piece]] = [["", Span(_pool(result), "dim"), Span("GPUs needed", "dim")]]
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
    told = [one for one in result.reasons if not result.options or one.code not in _RULES]
    if not told:
        return []
    screen: Screen = [BLANK, line(Span("Why others were rejected", "bold"), indent=1)]
    for reason in told[:_SHOWN_REASONS]:
        screen += wrapped(_reason(reason), indent=2, hang=2)
    left = len(told) - _SHOWN_REASONS
    if left > 0:
        screen.append(line(Span(f"and {count(left, 'reason')} more: --json", "dim"), indent=2))
    return screen


def _reason(reason: Reason) -> str:
    """``weights alone do not fit (a10-24gb and 23 more): 61.02 GiB …``; of one GPU the nearest candidate."""
    # One GPU among many is not worth its way out; weights that nobody knows are.
    message = reason.message.partition(". Ways out:")[0] if len(reason.gpus) > 1 else reason.message
    head = WHY.get(reason.code, reason.code.replace("-", " "))
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
        f"{_engines(result)}; objective {result.objective}, quality {result.quality};"
        f" model {result.model.source}",
        indent=1,
        style="dim",
        first="rules:  ",
    )


def _engines(result: PlanResult) -> str:
    """``vLLM 0.33``; all that the table is about, the best's first."""
    named = [engine_title(result.engine)]
    for spec in [one.engine for one in result.options] + [one.engine for one in result.unserved]:
        name, _, version = spec.partition("@")
        if name != result.engine.name:
            named.append(engine_title(EngineRef(name, version)))
    return ", ".join(dict.fromkeys(named))


def _next(result: PlanResult, typed: Sequence[str], look: Sequence[str]) -> Screen:
    screen: Screen = []
    if look:
        screen += wrapped(command(*look), indent=1, style="dim", first="look:   ")
    if result.options:
        screen += wrapped(
            command("kvplan", "plan", *typed, "--write", "plan.yaml"), indent=1, style="dim", first="keep:   "
        )
    pool = "--pool likely, " if result.pool == SAFE else ""
    screen += wrapped(
        f"--json, --markdown, --levers, --pareto, {pool}--quality aggressive",
        indent=1,
        style="dim",
        first="more:   ",
    )
    return screen
