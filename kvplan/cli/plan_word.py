"""A plan where a command takes a model: of a plan file, or of what starts a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.api import load_plans
from kvplan.cli.commands import Given, is_given, text_of, words_given
from kvplan.cli.given import CONFIG_VARIABLE, gather
from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.json_input import SHOWN_STDIN, STDIN, read_standard_input

if TYPE_CHECKING:
    from kvplan.files.launch.found import Broken
    from kvplan.files.launch.launch import Launch
    from kvplan.files.launch.tools import Rendering
    from kvplan.plans.plan import Plan

NO_DEFAULTS = {CONFIG_VARIABLE: ""}
"""The environment beside a plan: its own, without a config file."""
_OF_A_START = ("gpu", "engine")
"""Settings that a command or manifest may leave open."""


def is_plan_file(word: str) -> bool:
    """Whether a word names a plan file and no model card."""
    if not _may_start(word):
        return False
    from kvplan.api.launching import is_launch, is_launch_text

    return _is_plan(word) or (is_launch_text(read_standard_input()) if word == STDIN else is_launch(word))


_ENDS = tuple(
    """.yaml .yml .sh .bash .zsh .ksh .sbatch .slurm .job .service .container .bat .cmd .ps1 .py .ipynb .mk
    .modelfile .dockerfile .conf .env""".split()
)


def _may_start(word: str) -> bool:
    """Whether it is worth looking closer: a file of those kinds or without an end, or several words."""
    if word == STDIN or word.lower().endswith(_ENDS) or any(char.isspace() for char in word):
        return True
    name = Path(word).name
    if name.startswith(("Modelfile", "Dockerfile", "Containerfile")):
        return True
    return not Path(word).suffix and os.path.isfile(word)  # noqa: PTH113 - never raises, whatever the name


def _is_plan(word: str) -> bool:
    from kvplan.api.checking.load import has_head, is_plan

    if word == STDIN:
        return has_head(read_standard_input())
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
    elif word == STDIN:
        from kvplan.api.checking.load import plans_in
        from kvplan.files.plans.file import read_plan_text
        from kvplan.plans.serve import flags_of

        environment = text_of(given, "environment")
        read = read_plan_text(read_standard_input(), engine_of=flags_of, environment=environment)
        plans = plans_in(read, environment)
    else:
        plans = load_plans(word, environment=text_of(given, "environment"))
    name = _chosen(plans, SHOWN_STDIN if word == STDIN else word, text_of(given, "plan_name"))
    return next(plan for plan in plans if plan.name == name)


def _chosen(found: Sequence[Plan | Launch | Broken], shown: str, name: str | None) -> str:
    """The name of the one that is meant. Raises KvplanError(bad-usage | unknown-plan)."""
    names = list(dict.fromkeys(one.name for one in found))
    if name is not None and name not in names:
        near = did_you_mean(name, names)
        hint = f"did you mean {near}?" if near else "plans: " + ", ".join(names)
        raise KvplanError("unknown-plan", f"{shown} has no plan {name}", help=hint)
    if name is None and len(found) != 1:
        raise KvplanError(
            "bad-usage",
            f"{shown} has {len(found)} plans, and one is taken at a time",
            help=f"--plan {names[0]}: one of {', '.join(names)}" if names else (),
        )
    return name or names[0]


def started_plans(word: str, given: Given, *, needs_gpu: bool = True) -> tuple[Plan, ...]:
    """The plans of a command or manifest, on the kind of GPU that ``--gpu`` names. Raises KvplanError."""
    from kvplan.api.launching import decoded, import_launches, launched_plans, start_text, title_of

    gpu, engine = text_of(given, "gpu"), text_of(given, "engine")
    text = None
    if word == STDIN:
        word, text = SHOWN_STDIN, decoded(read_standard_input())
    broken: list[Broken] = []
    launches = import_launches(word, engine=engine, text=text, broken=broken)
    name = _chosen([*launches, *broken], word, text_of(given, "plan_name"))
    launches = [one for one in launches if one.name == name]
    if not launches:
        raise next(error for other, error in broken if other == name)
    written = start_text(word) if text is None else text
    return launched_plans(launches, gpu=gpu, shown=title_of(word), needs_gpu=needs_gpu, written=written)


def rendering_of(given: Given) -> Rendering:
    """The programs that may be run on a folder."""
    from kvplan.files.launch.tools import Rendering

    values = tuple(words_given(given, "values"))
    return Rendering(is_given(given, "helm"), is_given(given, "kustomize"), values)


def only(given: Given, allowed: Iterable[str], word: str) -> dict[str, Any]:
    """The options typed next to a plan. Raises KvplanError(bad-usage) for what a plan says itself.

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
