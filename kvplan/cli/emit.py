"""``kvplan emit``: a plan file as what starts its engines, or watches them."""

from __future__ import annotations

from pathlib import Path

from kvplan.api import load_model
from kvplan.checking.start import REFUSED
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.plan_word import plan_of
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.engines.spill import spill
from kvplan.errors import EXIT_NO, KvplanError
from kvplan.files.writing import write_whole
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.plans.question import start_of
from kvplan.plans.serve import remarks
from kvplan.report.check.shown import one_line
from kvplan.report.emit import DATA, emit
from kvplan.report.layout import line
from kvplan.results import SCHEMA_VERSION


def run(words: list[str], given: Given) -> Answer:
    """The text on stdout, or in a file."""
    check_color(given)
    plan = plan_of(words[0], given)
    target = text_of(given, "to") or plan.engine.partition("@")[0]
    model = load_model(plan.model)
    _starts(plan, model)
    text = emit(plan, target, model=model, image=text_of(given, "image"))
    if target not in DATA:
        text = _remarks(plan) + text
    output = text_of(given, "output")
    if output is not None:
        write_whole(Path(output), text)
    if is_given(given, "json"):
        entry = {"plan": plan.name, "environment": plan.environment, "target": target}
        where = {"text": text} if output is None else {"path": output}
        return Answer(data={"schema_version": SCHEMA_VERSION, **entry, **where})
    return Answer(text=text) if output is None else Answer([line(f"wrote {output}")])


def _remarks(plan: Plan) -> str:
    """What of a command or manifest does not stand in what is written, as comments."""
    return "".join(f"# {one_line(note)}\n" for note in remarks(plan))


def _starts(plan: Plan, model: Model) -> None:
    """What the engine would refuse is not written. Raises KvplanError, with exit code 1 for a refusal.

    A plan of which nothing is known but its flags (no weights, no budget) is written as it stands.
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
