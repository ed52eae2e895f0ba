"""``kvplan cards new`` and ``kvplan cards lint``."""

from __future__ import annotations

from pathlib import Path

from kvplan.api import size
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.errors import EXIT_NO, EXIT_OK
from kvplan.files.cards.find import card_from_config, lint_cards
from kvplan.files.writing import write_new
from kvplan.report.layout import BLANK, Screen, Span, line, wrapped
from kvplan.report.words import count
from kvplan.results import SCHEMA_VERSION


def new(words: list[str], given: Given) -> Answer:
    """The card of a config, on stdout or in a file that must not exist yet."""
    check_color(given)
    text = card_from_config(words[0], count=is_given(given, "count"), size=size)
    output = text_of(given, "output")
    if output is None:
        return (
            Answer(data={"schema_version": SCHEMA_VERSION, "card": text})
            if is_given(given, "json")
            else Answer(text=text)
        )
    path = Path(output)
    write_new(path, text)
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, "path": str(path)})
    steps = [f"check it: kvplan cards lint {path}"]
    if "\nweights:\n  how: unknown" in text or "\nweights: {how: unknown" in text:
        steps.append("weights: `--count` counts them (extras hf and gpu), or write parameters and bytes")
    if not words[0].startswith("hf:"):
        steps.append("source: say where the config was read; `verified: true` where it is the published file")
    return Answer([line(f"wrote {path}"), *(line(Span(step, "dim"), indent=1) for step in steps)])


def lint(words: list[str], given: Given) -> Answer:
    """Everything that is wrong with cards. Exit 1 where something is."""
    check_color(given)
    findings = lint_cards([Path(word) for word in words] or None, size=size)
    code = EXIT_NO if findings else EXIT_OK
    if is_given(given, "json"):
        entries = [
            {name: getattr(one, name) for name in ("path", "code", "message", "where")} for one in findings
        ]
        return Answer(data={"schema_version": SCHEMA_VERSION, "findings": entries}, code=code)
    what = count(len(words), "card") if words else "every card that came with kvplan"
    if not findings:
        return Answer([line(f"Nothing to mend in {what}.")])
    screen: Screen = [line(Span(count(len(findings), "finding"), "bad"), f" in {what}.")]
    for one in findings:
        screen += [BLANK, *wrapped(f"{one.path}: {one.message} [{one.code}]", hang=2)]
        screen += [line(row, indent=1) for row in (one.where or "").splitlines()]
    return Answer(screen, code=code)
