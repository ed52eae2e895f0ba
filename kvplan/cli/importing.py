"""``kvplan import``: what starts a server, as a plan file."""

from __future__ import annotations

import sys
from pathlib import Path

from kvplan.api.launching import (
    import_launches,
    imported,
    lines_of,
    readable_plans,
    start_text,
    title_of,
)
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of, words_given
from kvplan.cli.plan_word import rendering_of
from kvplan.cli.terminal import Answer, write_error
from kvplan.errors import KvplanError
from kvplan.files.json_input import SHOWN_STDIN, STDIN, read_standard_input
from kvplan.files.launch.found import Broken
from kvplan.files.launch.given import Variables, variables_of
from kvplan.files.launch.lines import Line
from kvplan.files.launch.tools import rendered_of
from kvplan.files.launch.words_of_lines import COUNTED, NOTHING, PARTLY, REFUSED, UNREAD
from kvplan.files.writing import write_new, write_whole
from kvplan.plans.serve import remarks
from kvplan.report.layout import Screen, Span, columns, line, printable, wrapped
from kvplan.report.plan_file import plan_text


def run(words: list[str], given: Given) -> Answer:
    """The plans on stdout, or in a file."""
    check_color(given)
    write, overwrite = text_of(given, "write"), is_given(given, "overwrite")
    if overwrite and write is None:
        raise KvplanError("bad-usage", "--overwrite belongs to --write", help="--write plan.yaml --overwrite")
    word = words[0]
    text = None
    if word == STDIN:
        word, text = SHOWN_STDIN, read_standard_input().decode("utf-8", "replace")
    for manifests in rendered_of([word], rendering_of(given)).values():
        word, text = manifests.shown, manifests.text
    broken: list[Broken] = []
    shown = title_of(word)
    variables = Variables(variables_of(words_given(given, "variables")))
    try:
        launches = import_launches(
            word, engine=text_of(given, "engine"), text=text, broken=broken, model=text_of(given, "model"),
            variables=variables,
        )  # fmt: skip
    finally:
        variables.check_used(shown)
    gpu = text_of(given, "gpu")
    written = start_text(word) if text is None else text
    plans = readable_plans(launches, broken, gpu=gpu, shown=shown, written=written)
    directory = Path(write).parent if write is not None else None
    file = "---\n".join(
        plan_text(plan, comments=(f"Read from {shown}.", *remarks(plan)), directory=directory)
        for plan in plans
    )
    if write is not None:
        (write_whole if overwrite else write_new)(Path(write), file)
    for name, error in broken:
        write_error(printable(f"left out: {name}: {error.message}") + "\n", sys.stderr)
    if is_given(given, "json"):
        return Answer(data=imported(plans, file, broken).model_dump())
    if is_given(given, "verbose"):
        lines = lines_of(
            word, launches, broken, text=text, engine=text_of(given, "engine"), variables=variables.values
        )
        return Answer(_lines(lines))
    if write is None:
        return Answer(text=file)
    screen = [line(f"wrote {write}")]
    for plan in plans:
        for note in remarks(plan):
            screen += wrapped(f"{plan.name}: {note}", indent=2)
    return Answer([*screen, line(f"check it: kvplan check {write}")])


def _lines(lines: list[Line]) -> Screen:
    """The lines of the file, each behind a word for what became of it."""
    styles = {COUNTED: "good", PARTLY: "warn", UNREAD: "warn", REFUSED: "bad"}
    longest, room = len(NOTHING), columns() - len(NOTHING) - 2
    screen = []
    for one in lines:
        row = printable(one.text).expandtabs(4)
        shown = row if len(row) <= room else row[: room - 1] + "…"
        screen.append(line(Span(f"{one.became:<{longest}}", styles.get(one.became, "dim")), "  ", shown))
    guessed = [str(place) for place, one in enumerate(lines, 1) if not one.placed]
    if guessed:
        numbers = f"line{'s' if len(guessed) > 1 else ''} {', '.join(guessed)}"
        which = "every line" if len(guessed) > _MOST_NUMBERS else numbers
        screen += [line(), *wrapped(f"by its words, as no place is known: {which}")]
    return screen


_MOST_NUMBERS = 24
