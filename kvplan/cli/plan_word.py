"""A plan file where a command takes a model: the one that is meant, and what may stand beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvplan.api import load_plans
from kvplan.cli.commands import Given, text_of
from kvplan.cli.given import CONFIG_VARIABLE, gather
from kvplan.errors import KvplanError, did_you_mean
from kvplan.plans.plan import Plan

NO_DEFAULTS = {CONFIG_VARIABLE: ""}
"""The environment beside a plan: its own, without a config file."""


def is_plan_file(word: str) -> bool:
    """Whether a word names a plan file and no model card."""
    if not word.lower().endswith((".yaml", ".yml")):
        return False
    from kvplan.api.checking.load import is_plan

    return is_plan(Path(word))


def plan_of(word: str, given: Given) -> Plan:
    """The one plan of a file that ``--env`` and ``--plan`` mean. Raises KvplanError(bad-usage |
    unknown-plan), or with every mistake of a plan that is wrong."""
    plans = load_plans(word, environment=text_of(given, "environment"))
    names = list(dict.fromkeys(plan.name for plan in plans))
    name = text_of(given, "plan_name")
    if name is not None:
        plans = tuple(plan for plan in plans if plan.name == name)
        if not plans:
            near = did_you_mean(name, names)
            hint = f"did you mean {near}?" if near else "plans: " + ", ".join(names)
            raise KvplanError("unknown-plan", f"{word} has no plan {name}", help=hint)
    if len(plans) != 1:
        raise KvplanError(
            "bad-usage",
            f"{word} has {len(plans)} plans, and one is taken at a time",
            help=f"--plan {names[0]}: one of {', '.join(names)}" if names else (),
        )
    return plans[0]


def only(given: Given, allowed: Iterable[str], word: str) -> dict[str, Any]:
    """What was typed beside a plan. Raises KvplanError(bad-usage) for what a plan says itself.

    The environment's and the config file's defaults do not count: a plan is the same on every machine.
    """
    typed = gather(given, NO_DEFAULTS)
    for name in typed:
        if name not in allowed:
            flag = "--" + name.replace("_", "-")
            raise KvplanError(
                "bad-usage",
                f"{flag} belongs to a model: a plan says its own",
                where=word,
                help=f"beside a plan: {', '.join('--' + one.replace('_', '-') for one in allowed)}",
            )
    return typed
