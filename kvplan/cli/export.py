"""``kvplan export``: a plan as what starts or monitors its engines, or plans as a report."""

from __future__ import annotations

import os
from pathlib import Path

from kvplan.api import load_model
from kvplan.checking.start import REFUSED
from kvplan.cli.ask import check_color
from kvplan.cli.check import today
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.export_options import ONLY_REPORTS, ONLY_STARTS
from kvplan.cli.lists import pieces_of
from kvplan.cli.plan_word import plan_of
from kvplan.cli.terminal import Answer
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.engines.spill import spill
from kvplan.errors import EXIT_NO, KvplanError
from kvplan.files.json_input import STDIN, read_standard_input
from kvplan.files.writing import write_whole
from kvplan.model import Model
from kvplan.plans.findings import CheckReport
from kvplan.plans.plan import Plan
from kvplan.plans.question import start_of
from kvplan.plans.serve import remarks
from kvplan.report.check.shown import one_line, sentence
from kvplan.report.export import COMMAND, DATA, REPORTS, check_target, export
from kvplan.report.layout import line
from kvplan.results import SCHEMA_VERSION

NONE = "none"


def run(words: list[str], given: Given) -> Answer:
    """The text on stdout, or in a file."""
    check_color(given)
    target = text_of(given, "to") or COMMAND
    check_target(target)
    for option in ONLY_STARTS if target in REPORTS else ONLY_REPORTS:
        if given.get(option.name) is not None:
            raise KvplanError("bad-usage", f"{option.flags[0]} does not go with --to {target}")
    if target in REPORTS:
        return _report(words, given, target)
    if len(words) > 1:
        raise KvplanError("bad-usage", f"--to {target} takes one plan", help="--to html takes several")
    return _start(words[0], given, target)


def _start(word: str, given: Given, target: str) -> Answer:
    """One plan as a command, a manifest, alerts or a dashboard."""
    plan = plan_of(word, given)
    model = load_model(plan.model)
    _check_start(plan, model)
    text = export(plan, target, model=model, image=text_of(given, "image"))
    if target not in DATA:
        text = "".join(f"# {one_line(note)}\n" for note in remarks(plan)) + text
    output = text_of(given, "output")
    if output is not None:
        write_whole(Path(output), text)
    if is_given(given, "json"):
        entry = {"plan": plan.name, "environment": plan.environment, "target": target}
        where = {"text": text} if output is None else {"path": output}
        return Answer(data={"schema_version": SCHEMA_VERSION, **entry, **where})
    return Answer(text=text) if output is None else Answer([line(f"wrote {output}")])


def _check_start(plan: Plan, model: Model) -> None:
    """Raises KvplanError where the engine would refuse to start, with exit code 1.

    A plan without weights or a budget is exported as it stands.
    """
    try:
        choice = choose(plan.engine)
        refusal = ask(model, choice, spill(model, choice, start_of(plan))[0]).refusal
    except KvplanError as error:
        if error.code in REFUSED:
            raise
        return
    if refusal is not None:
        raise KvplanError(
            refusal.code,
            f"{plan.engine} would refuse to start: {refusal.message}",
            help=refusal.help,
            exit_code=EXIT_NO,
        )


def _report(words: list[str], given: Given, target: str) -> Answer:
    """Plans as one page, Markdown or JSON."""
    if words.count(STDIN) > 1:
        raise KvplanError("bad-usage", "standard input can be read once only")
    from kvplan.api.reporting import report_of

    reports = report_of(
        words,
        environment=text_of(given, "environment"),
        gpus=_compared(text_of(given, "compare_gpus")),
        simulated=is_given(given, "simulate"),
        today=today(os.environ),
        stdin=read_standard_input() if STDIN in words else None,
        gpu=text_of(given, "gpu"),
    )
    report = CheckReport(tuple(one.checked for one in reports))
    output, as_json = text_of(given, "output"), is_given(given, "json")
    text = ""
    if output is not None or not as_json:
        from kvplan.report.full.html import report_page
        from kvplan.report.full.markdown import report_markdown

        text = report_page(reports) if target == "html" else report_markdown(reports)
    if output is not None:
        write_whole(Path(output), text)
    if as_json:
        from kvplan.report.full.json import report_data

        data: dict[str, object] = report_data(reports)
        return Answer(data=data, code=report.exit_code)
    if output is None:
        return Answer(text=text, code=report.exit_code)
    return Answer([line(sentence(report)), line(f"wrote {output}")], code=report.exit_code)


def _compared(text: str | None) -> list[str] | None:
    """Names of GPUs; empty for none of them; None for the default ones."""
    if text is None:
        return None
    return [] if text.strip().lower() == NONE else pieces_of(text, "gpu")
