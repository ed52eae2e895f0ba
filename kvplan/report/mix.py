"""The screen of a mix of lengths."""

from __future__ import annotations

from fractions import Fraction

from kvplan.deployment.mix import Filled, Mix
from kvplan.report.budget import short_memory
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.notes import help_lines, warning_lines
from kvplan.report.size_sentence import elsewhere, judged
from kvplan.report.words import count, engine_title
from kvplan.results import Verdict

_LENGTHS = ("--max-model-len", "--tokens", "--context-length", "--max-seq-len")
"""A shorter server takes no mix with a longer request."""


def mix_screen(found: Mix) -> Screen:
    """Whether the mix is held in the likely pool and in the safe one, and how many in its proportions are."""
    result = found.result
    title = engine_title(result.engine)
    if result.refusal is not None:
        return [
            *wrapped(f"{title} would not serve {result.model.id}: {result.refusal.message}", first="No: "),
            *help_lines(tuple(way for way in result.refusal.help if not way.startswith(_LENGTHS))),
        ]
    deployment = found.longest.deployment
    gpu = deployment.settings.gpu
    where = "" if gpu is None else f" on {deployment.gpus} × {gpu.slug}"
    likely, safe = found.held_in(found.likely), found.held_in(found.safe)
    verdict = Verdict.YES if safe else Verdict.LIKELY if likely else Verdict.NO
    verb = "fit" if likely else "do not fit"
    verb += "s" if found.requests == 1 and likely else ""
    sure = ", but not safely" if likely and not safe else ""
    hosted = elsewhere(result) if likely else ""
    requests = count(found.requests, "request")
    text = f"{requests} to {result.model.id}{where}, {title}, {verb}{sure}{hosted}."
    screen = judged(text, verdict, result)
    rows: list[list[Piece]] = [[Span("requests", "dim"), Span("tokens each", "dim")]]
    rows += [[f"{part.requests:,}", f"{part.tokens:,}"] for part in found.parts]
    screen += [BLANK, *table(rows, "rr"), BLANK]
    figures: list[list[Piece]] = [
        ["", Span("likely", "dim"), Span("safe", "dim")],
        ["of the pool they take", _share(found.likely), _share(found.safe)],
        ["most in these proportions", f"{found.likely.most:,}", f"{found.safe.most:,}"],
    ]
    screen += table(figures, "lrr")
    if found.limit is not None and found.likely.most == found.limit * deployment.pools:
        screen += wrapped(f"no more than max_num_seqs, {found.limit:,}, run at once", indent=1, hang=2)
    if result.budget is not None:
        screen += [BLANK, *short_memory(result, result.budget)]
    started = result.settings.get("max_model_len")
    if started is not None:
        screen += [BLANK, line(Span(f"started with --max-model-len {started}", "dim"), indent=1)]
    return [*screen, BLANK, *warning_lines(result.warnings)] if result.warnings else screen


def _share(filled: Filled) -> str:
    if filled.share is None:
        return "one is never admitted"
    return f"{_percent(filled.share)} %"


def _percent(share: Fraction) -> str:
    tenths = -(-share.numerator * 1000 // share.denominator)  # rounded up: 100.0 is not more than the pool
    return f"{tenths // 10:,}.{tenths % 10}"
