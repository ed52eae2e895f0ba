"""A plan as the command that starts its engine, as a manifest, or as what monitors and scales it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kvplan.engines.folders import FOLDERS
from kvplan.errors import KvplanError, did_you_mean
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.settings import Settings

COMMAND = "command"
WRITERS = {
    COMMAND: "kvplan.report.export.shell:export",
    "compose": "kvplan.report.export.compose:export",
    "kubernetes": "kvplan.report.export.kubernetes:export",
    "dynamo": "kvplan.report.export.dynamo:export",
    "prometheus": "kvplan.report.export.prometheus:export",
    "grafana": "kvplan.report.export.grafana:export",
    "keda": "kvplan.report.export.keda:export",
}
"""Target → ``module:function``."""
ALIKE = (COMMAND, "compose", "kubernetes", "keda")
"""Targets whose engines are alike: none sends a prompt to one engine and its answer to another."""
REPORTS = ("html", "markdown")
TARGETS = (*REPORTS, *WRITERS)
DATA = ("grafana",)
"""Targets whose format has no comments."""


def check_target(target: str) -> None:
    """Raises KvplanError(unknown-target)."""
    if target in TARGETS:
        return
    near = COMMAND if target in FOLDERS else did_you_mean(target, TARGETS)
    raise KvplanError(
        "unknown-target",
        f"kvplan cannot export to {target!r}",
        help=f"did you mean --to {near}?" if near else "--to " + ", ".join(TARGETS),
    )


def export(
    plan: Plan,
    target: str,
    settings: Settings | None = None,
    *,
    model: Model | None = None,
    image: str | None = None,
) -> str:
    """The plan as one of WRITERS.

    settings: resolved ones, to write every value; default: the plan's own. model: what the plan names, to
    find its checkpoint. image: a container image, where the engine's own image of that version is not wanted
    or not known. Raises KvplanError: no-such-argument, bad-argument, no-checkpoint, no-server, several-nodes,
    too-few-gpus, no-device, no-image, disaggregated."""
    fleet = plan.fleet
    if fleet.prefill_replicas and target in ALIKE:
        raise KvplanError(
            "disaggregated",
            f"{fleet.prefill_replicas} of the plan's engines compute prompts and {fleet.decode_replicas} make"
            " answers: something between them has to send each request to one and then to the other",
            help="--to dynamo: its frontend does",
        )
    module, _, function = WRITERS[target].partition(":")
    write: Callable[[Plan, Settings, Model | None, str | None], str] = getattr(
        import_module(module), function
    )
    return write(plan, plan.settings if settings is None else settings, model, image)
