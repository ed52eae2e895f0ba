"""A plan where a command takes a model: of a plan file, or of what starts a server."""

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
_OF_A_START = ("gpu", "engine")
"""What a command or manifest may leave open."""


def is_plan_file(word: str) -> bool:
    """Whether a word names a plan file and no model card."""
    if _may_start(word):
        from kvplan.api.launching import is_launch

        return _is_plan(word) or is_launch(word)
    return False


def _may_start(word: str) -> bool:
    """Whether it is worth looking closer: a file of those kinds, or several words in one."""
    ends = (".yaml", ".yml", ".sh", ".bash", ".modelfile")
    return word.lower().endswith(ends) or "Modelfile" in word or any(char.isspace() for char in word)


def _is_plan(word: str) -> bool:
    from kvplan.api.checking.load import is_plan

    return word.lower().endswith((".yaml", ".yml")) and is_plan(Path(word))


def is_started(word: str) -> bool:
    """Whether a word is no plan file, but starts a server."""
    return is_plan_file(word) and not _is_plan(word)


def plan_of(word: str, given: Given, *, needs_gpu: bool = True, searched: bool = False) -> Plan:
    """The one plan of a file that ``--env`` and ``--plan`` mean, or of what starts a server, on ``--gpu``.

    needs_gpu: else such a server may name none. searched: ``--gpu`` is what is looked among, not where it
    runs. Raises KvplanError(bad-usage | unknown-plan), or with every mistake of a plan that is wrong."""
    if is_started(word):
        plans = started_plans(word, {} if searched else given, needs_gpu=needs_gpu and not searched)
    else:
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


def started_plans(word: str, given: Given, *, needs_gpu: bool = True) -> tuple[Plan, ...]:
    """The plans of a command or manifest, on the kind of GPU that ``--gpu`` names. Raises KvplanError."""
    from kvplan.api.launching import import_launches, launched_plans, title_of

    gpu, engine = text_of(given, "gpu"), text_of(given, "engine")
    return launched_plans(
        import_launches(word, engine=engine), gpu=gpu, shown=title_of(word), needs_gpu=needs_gpu
    )


def only(given: Given, allowed: Iterable[str], word: str) -> dict[str, Any]:
    """What was typed beside a plan. Raises KvplanError(bad-usage) for what a plan says itself.

    The environment's and the config file's defaults do not count: a plan is the same on every machine.
    """
    if is_started(word):
        given = {name: value for name, value in given.items() if name not in _OF_A_START}
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
