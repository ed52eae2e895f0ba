"""``kvplan check``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path

from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of, words_given
from kvplan.cli.plan_word import rendering_of
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.json_input import STDIN, read_standard_input
from kvplan.files.launch.given import variables_of
from kvplan.files.writing import cannot_write, write_whole
from kvplan.plans.findings import CheckReport
from kvplan.report.check import REPORTERS, render
from kvplan.report.check.text import screen
from kvplan.report.layout import Screen, line

EPOCH = "SOURCE_DATE_EPOCH"
_LONGEST_TIME = 12


def run(words: list[str], given: Given) -> Answer:
    """Check the plans; the report in its form, to stdout or a file."""
    check_color(given)
    if words.count(STDIN) > 1:
        raise KvplanError("bad-usage", "standard input can be read once only")
    form = _form(given)
    if is_given(given, "quiet") and form != "text" and text_of(given, "output") is None:
        raise KvplanError("bad-usage", f"--quiet is about the screen, and --format {form} has none")
    from kvplan.api.checking.paths import check_paths

    report = check_paths(
        words,
        environment=text_of(given, "env"),
        baseline=text_of(given, "baseline"),
        changed_only=is_given(given, "changed_only"),
        today=today(os.environ),
        gpu=text_of(given, "gpu"),
        model=text_of(given, "model"),
        require=text_of(given, "require"),
        variables=variables_of(words_given(given, "variables")),
        rendering=rendering_of(given),
        stdin=read_standard_input() if STDIN in words else None,
        fleet=text_of(given, "fleet"),
        write_lock=text_of(given, "write_lock"),
    )
    code = report.exit_code
    if code == EXIT_NO and is_given(given, "exit_zero"):
        code = EXIT_OK
    quiet = is_given(given, "quiet")
    return _answer(report, form, text_of(given, "output"), code, quiet=quiet)


def _form(given: Given) -> str:
    form = text_of(given, "format")
    if is_given(given, "json"):
        if form not in (None, "json"):
            raise KvplanError("bad-usage", f"--json and --format {form}: one of them")
        return "json"
    if form is not None and form not in REPORTERS:
        render(CheckReport(()), form)  # says which there are
    return form or "text"


def _answer(report: CheckReport, form: str, output: str | None, code: int, *, quiet: bool) -> Answer:
    """Under GitHub Actions annotations stand below the text, and the summary of the step is written."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if output is not None:
        write_whole(Path(output), render(report, form))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if on_github and summary:
        _append(Path(summary), render(report, "markdown"))
    if form != "text" and output is None:
        return Answer(text=render(report, form), code=code)
    shown: Screen = screen(report, quiet=quiet)
    if on_github:
        shown = [*shown, *(line(row) for row in render(report, "github").splitlines())]
    return Answer(shown, code=code)


def today(environment: Mapping[str, str]) -> datetime.date:
    """The day against which receipts age: SOURCE_DATE_EPOCH (seconds) where it is set, else now, UTC.

    Raises KvplanError(bad-setting).
    """
    given = environment.get(EPOCH)
    if not given:
        return datetime.datetime.now(datetime.timezone.utc).date()
    if not given.isascii() or not given.isdigit() or len(given) > _LONGEST_TIME - 1:
        raise KvplanError("bad-setting", f"{EPOCH} is {given!r}, no number of seconds")
    return datetime.datetime.fromtimestamp(int(given), datetime.timezone.utc).date()


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
