"""``kvplan import``: what starts a server, as a plan file."""

from __future__ import annotations

from pathlib import Path

from kvplan.api.launching import import_launches, imported, launched_plans, title_of
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.errors import KvplanError
from kvplan.files.json_input import read_stream, standard_input
from kvplan.files.writing import write_new, write_whole
from kvplan.plans.serve import remarks
from kvplan.report.layout import line, wrapped
from kvplan.report.plan_file import plan_text

STDIN = "-"


def run(words: list[str], given: Given) -> Answer:
    """The plans on stdout, or in a file."""
    check_color(given)
    write, overwrite = text_of(given, "write"), is_given(given, "overwrite")
    if overwrite and write is None:
        raise KvplanError("bad-usage", "--overwrite belongs to --write", help="--write plan.yaml --overwrite")
    word = words[0]
    text = None
    if word == STDIN:
        text = read_stream(standard_input(), name="standard input").decode("utf-8", "replace")
    launches = import_launches(word, engine=text_of(given, "engine"), text=text)
    gpu = text_of(given, "gpu")
    shown = title_of(word) if text is None else "standard input"
    plans = launched_plans(launches, gpu=gpu, shown=shown)
    directory = Path(write).parent if write is not None else None
    written = "---\n".join(
        plan_text(plan, comments=(f"Read from {shown}.", *remarks(plan)), directory=directory)
        for plan in plans
    )
    if write is not None:
        (write_whole if overwrite else write_new)(Path(write), written)
    if is_given(given, "json"):
        return Answer(data=imported(plans, written).model_dump())
    if write is None:
        return Answer(text=written)
    screen = [line(f"wrote {write}")]
    for plan in plans:
        for note in remarks(plan):
            screen += wrapped(f"{plan.name}: {note}", indent=2)
    return Answer([*screen, line(f"check it: kvplan check {write}")])
