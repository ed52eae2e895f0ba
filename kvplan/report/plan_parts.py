"""The parts of ``kvplan plan``'s screens: the sentence, the flags, the estimate, ways out, reasons."""

from __future__ import annotations

from kvplan.planning.ask import CONTEXT
from kvplan.planning.results import RULES, PlanResult, Reason, Simulated
from kvplan.plans.plan import SAFE
from kvplan.report.layout import Piece, Screen, Span, line, one_line, table, wrapped
from kvplan.report.plan_table import WHY, checkpoints, money, options_table
from kvplan.report.start_words import started
from kvplan.report.words import about, between, count, engine_title, in_time_words, size_words, two_digits
from kvplan.results import EngineRef
from kvplan.units import human_seconds

_SHOWN_REASONS = 7


_MEASURES = {
    "gpus": "GPUs", "cost_per_hour": "cost", "requests": "requests", "max_model_len": "length", "tpot": "TPOT"
}  # fmt: skip


_SHOWN_GPUS = 1


_SHOWN_FRONT = 20


def load_words(result: PlanResult) -> str:
    """``32 requests of 8,192 tokens``."""
    also = "".join(
        f", and {count(one.requests, 'request')} of {one.shape.tokens:,} tokens" for one in result.also
    )
    if len(result.shapes) == 1:
        return f"{count(result.requests, 'request')} of {result.shapes[0].tokens:,} tokens{also}"
    longest = max(shape.tokens for shape in result.shapes)
    return f"{count(result.requests, 'request')} of the mix (longest {longest:,} tokens){also}"


def plan_sentence(result: PlanResult) -> Screen:
    named = result.options[0].model if result.options else result.model.id
    name = named.rpartition("/")[2]
    if not result.options:
        text = f"No: none of the plans tried serves {load_words(result)} of {name}."
        if result.rate is not None:
            text = f"No: none of the plans tried keeps the times of {rate_words(result.rate)} of {name}."
        return wrapped(text, style="bad")
    best = result.options[0]
    if result.simulated is not None:
        return _simulated_sentence(result, result.simulated, name)
    kind = f"{result.gpus} × {best.gpu}" + (f" ({best.where})" if best.where else "")
    cost = "" if best.cost_per_hour is None else f", {money(best.cost_per_hour, result.currency)} an hour"
    length = f", max_model_len {best.max_model_len:,}" if result.objective == CONTEXT else ""
    held = f"{best.requests:,} likely, {best.safe_requests:,} safe"
    if best.memory_requests is not None:
        held += f"; memory holds {best.memory_requests:,}"
    asked = f"{load_words(result)}{length}{cost}"
    if best.host_bytes:
        asked += f", slowly: {size_words(best.host_bytes)} of weights and cache lie in host memory"
    if best.safe_requests >= result.requests:
        what = "serve" if result.gpus > 1 else "serves"
        style = "warn" if best.host_bytes else "good"
        return wrapped(f"{name}: {kind} {what} {asked} ({held}).", style=style)
    if best.safe_requests:
        return wrapped(f"{name}: {kind} may hold {asked}: {held}.", style="warn")
    return wrapped(f"{name}: {kind} may hold {asked}, or may not start: {held}.", style="warn")


def _simulated_sentence(result: PlanResult, found: Simulated, name: str) -> Screen:
    """``Llama-3.3-70B: 16 × h100 keep 99 % of 5 requests/s within TTFT 2 s and TPOT 50 ms; safely 24.``"""
    best = result.options[0]
    kind = f"{result.gpus} × {best.gpu}" + (f" ({best.where})" if best.where else "")
    cost = "" if best.cost_per_hour is None else f", {money(best.cost_per_hour, result.currency)} an hour"
    keep = "keep" if result.gpus > 1 else "keeps"
    asked = f"{share_words(found.goodput_at_least)} of {rate_words(found.rate)} within {limit_words(found)}"
    if result.pool == SAFE:
        return wrapped(f"{name}: {kind} safely {keep} {asked}{cost}.", style="good")
    safe = "none of those tried" if found.safe_gpus is None else f"{found.safe_gpus:,}"
    return wrapped(f"{name}: {kind} likely {keep} {asked}{cost}; safely {safe}.", style="good")


def share_words(share: float) -> str:
    """``99 %``, ``99.9 %``."""
    return f"{share * 100:.4g} %"


def rate_words(rate: float) -> str:
    return f"{rate:,.3g} requests/s" if rate < 1000 else f"{rate:,.0f} requests/s"


def limit_words(found: Simulated) -> str:
    """``TTFT 2 s and TPOT 50 ms``."""
    limits = (("TTFT", found.ttft_at_most), ("TPOT", found.tpot_at_most))
    return " and ".join(f"{name} {human_seconds(limit)}" for name, limit in limits if limit is not None)


def simulated_lines(result: PlanResult) -> Screen:
    """The requests that were simulated, and the figures with their interval."""
    found = result.simulated
    if found is None:
        return []
    p = f"p{found.goodput_at_least * 100:.4g}"
    times = [
        f"{name} {p} {human_seconds(value[1])} ({human_seconds(value[0])} … {human_seconds(value[2])})"
        for name, value in (("TTFT", found.ttft), ("TPOT", found.tpot))
    ]
    what = (
        f"{found.requests:,} {found.arrivals} arrivals"
        if found.drawn
        else (f"{found.requests:,} requests of {found.arrivals}")
    )
    said = f"{what}: {in_time_words(*found.goodput)}, {', '.join(times)}"
    return [
        *wrapped(said, indent=1, style="dim", first="simulated: "),
        *(row for note in found.notes for row in wrapped(note, indent=1, style="dim", first="           ")),
    ]


def flag_lines(result: PlanResult) -> Screen:
    """The flags of one engine."""
    best = result.options[0]
    if result.start:
        lines = [
            wrapped(line, indent=1, first="serve:  " if not place else "        ", hang=8)
            for place, line in enumerate(result.start)
        ]
        return [row for one in lines for row in one]
    first = "serve:  " if best.replicas == 1 else f"serve {best.replicas:,} ×:  "
    words = started(best.engine, best.model, best.serve)
    return wrapped(words, indent=1, first=first, hang=8)


def pool_lines(result: PlanResult) -> Screen:
    """The answer to --disaggregated: engines of both kinds, and the traffic between them."""
    pools = result.pools
    if pools is None:
        return []
    best = result.options[0]
    prompts = f"{count(pools.prompts_at_once, 'prompt')} at once in each, {pools.prompts_that_fit:,} fit"
    if result.simulated is None:
        slow = f"{pools.slow_prefill_replicas:,}" if pools.slow_prefill_replicas else "no number is enough"
        prompts = f"{slow} at slow times; {prompts}"
    rows: list[list[Piece]] = [
        [Span("prefill engines", "bold"), f"{pools.prefill_replicas:,}", prompts],
        [Span("decode engines", "bold"), f"{pools.decode_replicas:,}",
         f"{best.requests:,} requests at once in all"],
    ]  # fmt: skip
    each, rate = size_words(pools.transfer_bytes), size_words(pools.transfer_bytes_per_second)
    said = f"{count(pools.gpus_per_replica, 'GPU')} each; a request moves {each} of cache, {rate}/s in all"
    first = f"{pools.ttft_seconds:.2g} … {pools.ttft_high_seconds:.2g} s"
    estimated = f"an estimate without bursts: mean TTFT of the longest prompt {first}"
    return [
        *table(rows, "lrl"),
        *wrapped(f"{said}, over {pools.link}", indent=1),
        *(wrapped(estimated, indent=1, style="dim") if result.simulated is None else ()),
    ]


def cited(result: PlanResult) -> Screen:
    """The quality cost of the best plan's formats, a line each."""
    best = result.options[0]
    return [one_line(text, first="- ", style="dim") for text in best.citations]


def speed_lines(result: PlanResult) -> Screen:
    """The estimate of time, with its interval: two digits are what it is worth."""
    best = result.options[0]
    if best.speed is None or result.simulated is not None:
        return []
    low, likely, high = best.speed.tpot
    first, at, last = best.speed.ttft
    plain = ", steps without drafts" if best.settings.num_speculative_tokens else ""
    million = best.million()
    cost = "" if million is None else f", {million:,.2f} {result.currency} a million".rstrip()
    return wrapped(
        f"estimate for {_split(result)}{plain}: TPOT {about(likely)} ({between(low, high)}),"
        f" TTFT {about(at)} ({between(first, last)}),"
        f" {two_digits(best.speed.tokens_per_second[1]):,} tokens/s a replica{cost}",
        indent=1,
        style="dim",
    )


def _split(result: PlanResult) -> str:
    """The prompt and the answer that speed is estimated with: of a mix the mean ones."""
    total = sum(shape.weight for shape in result.shapes)
    prompt = -(-sum(shape.input_tokens * shape.weight for shape in result.shapes) // total)
    answer = -(-sum(shape.output_tokens * shape.weight for shape in result.shapes) // total)
    mean = "" if len(result.shapes) == 1 else " on average"
    return f"prompts of {prompt:,} and answers of {answer:,} tokens{mean}"


def ways_out(result: PlanResult, *, most: int | None = None) -> Screen:
    if not result.ways_out:
        return []
    title = "It would do with" if not result.options else "Fewer GPUs would do with"
    rows: list[list[Piece]] = [[way.flags, way.then] for way in result.ways_out[:most]]
    return [line(Span(title, "bold"), indent=1), *table(rows, "ll", indent=2)]


def lever_lines(result: PlanResult) -> Screen:
    """Those that would do something here, a line each, and the others by name."""
    if not result.levers:
        return []
    screen: Screen = [line(Span("Memory optimizations, for one engine", "bold"), indent=1)]
    for lever in result.levers:
        if lever.applies:
            flag = f" (--{lever.setting.replace('_', '-')})" if lever.setting else ""
            screen += wrapped(f"{lever.name}: {lever.summary}{flag}", indent=2, hang=2)
    idle = [lever.name for lever in result.levers if not lever.applies]
    if idle:
        screen += wrapped(f"no effect here: {', '.join(idle)} (why: --json)", indent=2, hang=2, style="dim")
    return screen


def front(result: PlanResult) -> Screen:
    """The answer to --pareto."""
    if not result.pareto:
        return []
    title = "Pareto front: " + ", ".join(_MEASURES[name] for name in result.pareto_by)
    screen = [line(Span(title, "bold"), indent=1)]
    screen += options_table(result.pareto[:_SHOWN_FRONT], result.currency, lengths=True)
    screen += checkpoints(result.pareto[:_SHOWN_FRONT])
    left = len(result.pareto) - _SHOWN_FRONT
    if left > 0:
        screen.append(line(Span(f"and {left:,} more: --json", "dim"), indent=2))
    return screen


def reason_lines(result: PlanResult, *, most: int = _SHOWN_REASONS, short: bool = False) -> Screen:
    told = [one for one in result.reasons if not result.options or one.code not in RULES]
    if not told:
        return []
    screen: Screen = [line(Span("Why others were rejected" if result.options else "Why", "bold"), indent=1)]
    for reason in told[:most]:
        text = _reason(reason)
        screen += [one_line(text, indent=2)] if short else wrapped(text, indent=2, hang=2)
    left = len(told) - most
    if left > 0:
        where = "-v, --json" if most < _SHOWN_REASONS else "--json"
        screen.append(line(Span(f"and {count(left, 'reason')} more: {where}", "dim"), indent=2))
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


def engine_titles(result: PlanResult) -> str:
    """``vLLM 0.33``; all that the table is about, the best's first."""
    named = [engine_title(result.engine)]
    for spec in [one.engine for one in result.options] + [one.engine for one in result.unserved]:
        name, _, version = spec.partition("@")
        if name != result.engine.name:
            named.append(engine_title(EngineRef(name, version)))
    return ", ".join(dict.fromkeys(named))
