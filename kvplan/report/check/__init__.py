"""The forms of a check's answer: one file each, ``render(report) -> str``, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kvplan.errors import KvplanError, did_you_mean
from kvplan.plans.findings import CheckReport

REPORTERS = {
    "text": "kvplan.report.check.text:render",
    "json": "kvplan.report.check.json:render",
    "github": "kvplan.report.check.github:render",
    "junit": "kvplan.report.check.junit:render",
    "sarif": "kvplan.report.check.sarif:render",
    "markdown": "kvplan.report.check.markdown:render",
}
"""Name of the form → ``module:function``."""


def render(report: CheckReport, form: str) -> str:
    """The report as text in one of the forms. Raises KvplanError(unknown-format)."""
    if form not in REPORTERS:
        near = did_you_mean(form, REPORTERS)
        raise KvplanError(
            "unknown-format",
            f"there is no format {form!r}",
            help=f"did you mean {near}?" if near else "one of " + ", ".join(REPORTERS),
        )
    module, _, function = REPORTERS[form].partition(":")
    draw: Callable[[CheckReport], str] = getattr(import_module(module), function)
    return draw(report)
