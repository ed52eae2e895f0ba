"""``kvplan emit``: a plan file as what starts its engines."""

from __future__ import annotations

from pathlib import Path

from kvplan.api import load_model
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.plan_word import plan_of
from kvplan.readers.writing import write_whole
from kvplan.report.emit import emit
from kvplan.report.layout import line
from kvplan.results import SCHEMA_VERSION


def run(words: list[str], given: Given) -> Answer:
    """The text on stdout, or in a file."""
    check_color(given)
    plan = plan_of(words[0], given)
    target = text_of(given, "to") or plan.engine.partition("@")[0]
    text = emit(plan, target, model=load_model(plan.model), image=text_of(given, "image"))
    output = text_of(given, "output")
    if output is not None:
        write_whole(Path(output), text)
    if is_given(given, "json"):
        entry = {"plan": plan.name, "environment": plan.environment, "target": target}
        where = {"text": text} if output is None else {"path": output}
        return Answer(data={"schema_version": SCHEMA_VERSION, **entry, **where})
    return Answer(text=text) if output is None else Answer([line(f"wrote {output}")])
