"""``kvplan report``: plans as something that people pass on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.check import today
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.lists import pieces_of
from kvplan.errors import KvplanError
from kvplan.files.json_input import STDIN, read_standard_input
from kvplan.files.writing import write_whole
from kvplan.plans.findings import CheckReport
from kvplan.report.check.shown import sentence
from kvplan.report.layout import line

NONE = "none"


def run(words: list[str], given: Given) -> Answer:
    """A page in a file, Markdown or JSON on stdout."""
    check_color(given)
    page = text_of(given, "html")
    markdown, as_json = is_given(given, "markdown"), is_given(given, "json")
    if markdown and as_json:
        raise KvplanError("bad-usage", "give one of --json and --markdown")
    if not (page or markdown or as_json):
        raise KvplanError("bad-usage", "a report of which form?", help=("--html report.html", "--markdown"))
    if words.count(STDIN) > 1:
        raise KvplanError("bad-usage", "standard input can be read once only")
    from kvplan.api.reporting import report_of

    reports = report_of(
        words,
        environment=text_of(given, "env"),
        gpus=_beside(text_of(given, "beside")),
        simulated=is_given(given, "simulate"),
        today=today(os.environ),
        stdin=read_standard_input() if STDIN in words else None,
        gpu=text_of(given, "gpu"),
    )
    report = CheckReport(tuple(one.checked for one in reports))
    if page is not None:
        from kvplan.report.full.html import report_page

        write_whole(Path(page), report_page(reports))
    if as_json:
        from kvplan.report.full.json import report_data

        data: dict[str, Any] = report_data(reports)
        return Answer(data=data, code=report.exit_code)
    if markdown:
        from kvplan.report.full.markdown import report_markdown

        return Answer(text=report_markdown(reports), code=report.exit_code)
    return Answer([line(sentence(report)), line(f"wrote {page}")], code=report.exit_code)


def _beside(text: str | None) -> list[str] | None:
    """Kinds of GPUs; none of them; None: the usual ones."""
    if text is None:
        return None
    return [] if text.strip().lower() == NONE else pieces_of(text, "gpu")
