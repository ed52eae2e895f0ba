"""The check as JSON: ``kvplan check --format json``."""

from __future__ import annotations

import json

from kvplan.plans.findings import CheckReport
from kvplan.record import dumped


def render(report: CheckReport) -> str:
    """The same bytes for the same report on every machine."""
    return json.dumps(dumped(report), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
