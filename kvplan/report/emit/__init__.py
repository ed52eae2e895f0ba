"""A plan as something that can be started (an engine's command line, a Compose file, a Kubernetes manifest)
or watched (Prometheus rules, a Grafana board)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kvplan.engines.folders import FOLDERS
from kvplan.errors import KvplanError, did_you_mean
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.settings import Settings

TARGETS = {
    **dict.fromkeys(FOLDERS, "kvplan.report.emit.shell:emit"),
    "docker-compose": "kvplan.report.emit.compose:emit",
    "kubernetes": "kvplan.report.emit.kubernetes:emit",
    "prometheus": "kvplan.report.emit.prometheus:emit",
    "grafana": "kvplan.report.emit.grafana:emit",
}
"""Target → ``module:function``. Engines: the target must be the plan's own."""
DATA = ("grafana",)
"""Targets whose text takes no comments."""


def emit(
    plan: Plan,
    target: str,
    settings: Settings | None = None,
    *,
    model: Model | None = None,
    image: str | None = None,
) -> str:
    """The text that starts the plan's engines.

    settings: the resolved ones (every value that shall be written); without them the plan's. model_id: what
    the engine loads where the plan names a card (``Model.id``). image: a container image, where the engine's
    own of that version is not wanted or not known. Raises KvplanError: unknown-target, wrong-engine,
    no-such-argument, bad-argument, no-checkpoint, no-server, several-nodes, too-few-gpus, no-device,
    no-image."""
    if target not in TARGETS:
        near = did_you_mean(target, TARGETS)
        raise KvplanError(
            "unknown-target",
            f"kvplan writes nothing for {target!r}",
            help=f"did you mean {near}?" if near else "one of " + ", ".join(TARGETS),
        )
    engine = plan.engine.partition("@")[0]
    if target in FOLDERS and target != engine:
        raise KvplanError(
            "wrong-engine",
            f"the plan is for {engine}, whose settings mean nothing to {target}",
            help=f"it can be written for {engine}, "
            + ", ".join(one for one in TARGETS if one not in FOLDERS),
        )
    module, _, function = TARGETS[target].partition(":")
    write: Callable[[Plan, Settings, Model | None, str | None], str] = getattr(
        import_module(module), function
    )
    return write(plan, plan.settings if settings is None else settings, model, image)
