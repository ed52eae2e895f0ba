"""``kvplan emit``: a plan file as what starts its engines."""

from __future__ import annotations

from pathlib import Path

from kvplan.api import load_model, load_plans
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.plans.plan import Plan
from kvplan.readers.writing import write_whole
from kvplan.report.emit import emit
from kvplan.report.layout import line
from kvplan.results import SCHEMA_VERSION


def run(words: list[str], given: Given) -> Answer:
    """The text on stdout, or in a file."""
    check_color(given)
    plan = _plan(words[0], text_of(given, "env"), text_of(given, "plan"))
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


def _plan(path: str, environment: str | None, name: str | None) -> Plan:
    """The one plan that is meant. Raises KvplanError(bad-usage | unknown-plan)."""
    plans = load_plans(path, environment=environment)
    names = [plan.name for plan in plans]
    if name is not None:
        plans = tuple(plan for plan in plans if plan.name == name)
        if not plans:
            near = did_you_mean(name, names)
            hint = f"did you mean {near}?" if near else "plans: " + ", ".join(names)
            raise KvplanError("unknown-plan", f"{path} has no plan {name}", help=hint)
    if len(plans) != 1:
        raise KvplanError(
            "bad-usage",
            f"{path} has {len(plans)} plans, and one is written",
            help=f"--plan {names[0]}: one of {', '.join(dict.fromkeys(names))}",
        )
    return plans[0]
