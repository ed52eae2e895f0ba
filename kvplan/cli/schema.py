"""``kvplan schema``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given
from kvplan.errors import KvplanError, did_you_mean


def _size() -> dict[str, Any]:
    from kvplan.report.schema import size_schema

    return size_schema()


def _compare() -> dict[str, Any]:
    from kvplan.report.schema import comparison_schema

    return comparison_schema()


def _simulate() -> dict[str, Any]:
    from kvplan.report.schema import simulation_schema

    return simulation_schema()


def _fits() -> dict[str, Any]:
    from kvplan.report.schema import fits_schema

    return fits_schema()


def _quality() -> dict[str, Any]:
    from kvplan.report.schema import quality_schema

    return quality_schema()


def _card() -> dict[str, Any]:
    from kvplan.files.cards.find import card_json_schema

    return card_json_schema()


def _gpu() -> dict[str, Any]:
    from kvplan.files.gpus.schema import gpu_spec_schema

    return gpu_spec_schema()


def _plan() -> dict[str, Any]:
    from kvplan.files.plans.schema import plan_schema

    return plan_schema()


def _fleet() -> dict[str, Any]:
    from kvplan.files.plans.fleet import fleet_schema

    return fleet_schema()


def _receipt() -> dict[str, Any]:
    from kvplan.files.plans.receipts import receipt_schema

    return receipt_schema()


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "size": _size,
    "compare": _compare,
    "simulate": _simulate,
    "fits": _fits,
    "quality": _quality,
    "card": _card,
    "gpu": _gpu,
    "plan": _plan,
    "fleet": _fleet,
    "receipt": _receipt,
}


def run(words: list[str], given: Given) -> Answer:
    """The schema of the given name; of ``size --json`` without one."""
    check_color(given)
    name = words[0] if words else "size"
    if name not in SCHEMAS:
        near = did_you_mean(name, SCHEMAS)
        raise KvplanError(
            "unknown-schema",
            f"there is no schema {name!r}",
            help=f"did you mean {near}?" if near else ", ".join(SCHEMAS),
        )
    return Answer(data=SCHEMAS[name]())
