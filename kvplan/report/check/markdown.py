"""Markdown for a pull-request comment or a step summary (GitHub's and GitLab's flavours).

The answer first, the plans in a table, what changes against a baseline, the reasons folded. Names stand in
code spans and findings in fenced blocks, so that nothing in a plan becomes markup or mentions anybody.
GitHub takes comments of at most 65,536 characters: what does not fit is left out whole, last blocks first,
and counted."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvplan.later import regex
from kvplan.plans.findings import CheckedPlan, CheckReport, Severity
from kvplan.report.check.shown import (
    Issue,
    cases_of,
    difference,
    difference_words,
    facts_in_order,
    figure,
    issues_of,
    label,
    measured_words,
    one_line,
    printable,
    sentence,
    title_of,
    verdict,
)
from kvplan.report.words import count

LIMIT = 65_536
_COLUMNS = (("max_requests", "requests"), ("kv_pool_bytes", "bytes"), ("gpus", "gpus"),
            ("cost_per_hour", "millionths"))  # fmt: skip
_MARKS = {"passes": "✅ passes", "fails": "❌ fails", "could not be judged": "⚠️ could not be judged"}
_TICKS = regex("`+")
_ROOM_FOR_NOTE = 300
_LONGEST_NAME = 100
_LONGEST_SUMMARY = 240


def render(report: CheckReport) -> str:
    """The whole comment, at most `LIMIT` characters."""
    head = [f"### kvplan: {sentence(report)}"]
    table = _table(cases_of(report))
    changes = _changes(report) if report.baseline else []
    said = [one for one in cases_of(report) if one.error or one.findings or one.facts]
    blocks = [_details(one) for one in sorted(said, key=lambda one: one.passed)]
    return _fitted(head, table, changes, blocks)


def _fitted(head: list[str], table: list[str], changes: list[str], blocks: list[str]) -> str:
    """Rows and blocks as long as they fit; for what does not a line that says how many."""
    text = "\n".join(head) + "\n"
    for rows, what in ((table, "plan"), (changes, "change")):
        text = _with_rows(text, rows, what)
    for at, block in enumerate(blocks):
        rest = len(blocks) - at
        if _size(text) + _size(block) + _ROOM_FOR_NOTE > LIMIT:
            return text + f"\n*The details of {count(rest, 'plan')} do not fit here: run `kvplan check`.*\n"
        text += "\n" + block
    return text


def _with_rows(text: str, rows: list[str], what: str) -> str:
    if not rows:
        return text
    text += "\n"
    for at, row in enumerate(rows):
        if _size(text) + _size(row) + 2 * _ROOM_FOR_NOTE > LIMIT:
            rest = count(len(rows) - at, f"more {what}")
            return text + f"\n*{rest} not shown: run `kvplan check`.*\n"
        text += row + "\n"
    return text


def _size(text: str) -> int:
    """Characters as UTF-16 counts them: never fewer than GitHub does."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _table(plans: Sequence[CheckedPlan]) -> list[str]:
    """Plan, verdict and those figures that any plan has."""
    if not plans:
        return []
    known = [(name, unit) for name, unit in _COLUMNS if any(one.fact(name) is not None for one in plans)]
    rows = [_row("Plan", "Verdict", *(title_of(name) for name, _ in known)), _rule(2, len(known))]
    for one in plans:
        figures = [_figure(one, name, unit) for name, unit in known]
        rows.append(_row(code(label(one)), _MARKS[verdict(one)], *figures))
    return rows


def _figure(one: CheckedPlan, name: str, unit: str) -> str:
    value = one.fact(name)
    if value is None:
        return "–"
    return figure(value, next((fact.unit for fact in one.facts if fact.name == name), unit))


def _changes(report: CheckReport) -> list[str]:
    """Every figure and verdict that is not what it was; since a lock, what moved it."""
    rows: list[str] = []
    whys: list[str] = []
    for before, after in report.pairs():
        one = after or before
        assert one is not None
        name, then, now = code(label(one)), _state(before), _state(after)
        moved = report.moved_of(before, after)
        if then != now:
            rows.append(_row(name, "Verdict", then, now, *[""] * (2 if report.moved else 1)))
        if before is None or after is None:
            continue
        for fact in facts_in_order(before, after):
            old, new = before.fact(fact.name), after.fact(fact.name)
            if old != new:
                by = () if moved is None else (" or ".join(moved.by(fact.name)),)
                rows.append(_row(name, title_of(fact.name), *_moved(old, new, fact.unit), *by))
        why = () if moved is None else moved.why
        whys += [f"- {name}: {one_line(difference_words(each))}" for each in why]
    if not rows:
        return ["Nothing changes against the baseline."]
    return [
        f"**Against the baseline, {count(len(rows), 'figure')} "
        f"{'changes' if len(rows) == 1 else 'change'}:**",
        "",
        _row("Plan", "Figure", "Before", "After", "Difference", *["Moved by"] * bool(report.moved)),
        _rule(2, 3 + bool(report.moved)),
        *rows,
        *(["", *whys] if whys else []),
    ]


def _state(one: CheckedPlan | None) -> str:
    return "–" if one is None else verdict(one)


def _moved(old: int | None, new: int | None, unit: str) -> tuple[str, str, str]:
    shown = tuple("–" if value is None else figure(value, unit) for value in (old, new))
    change = "" if old is None or new is None else difference(old, new, unit)
    return shown[0], shown[1], change


def _details(one: CheckedPlan) -> str:
    """One folded block: findings as they read in a terminal, then every figure. Open where the plan fails."""
    issues = issues_of(one)
    rows = [_told(issue) for issue in issues] + [measured_words(proof) for proof in one.evidence]
    if one.facts:
        figures = ((title_of(fact.name), figure(fact.value, fact.unit)) for fact in one.facts)
        rows.append("\n".join(f"{name}: {value}" for name, value in figures))
    count_of = {kind: sum(issue.severity is kind for issue in issues) for kind in Severity}
    kinds = ", ".join(count(number, kind.value) for kind, number in count_of.items() if number)
    title = " — ".join(part for part in (_MARKS[verdict(one)], kinds, _quiet(one.summary)) if part)
    opened = "" if one.passed else " open"
    name = escape(_cut(label(one)), quote=False)
    return (
        f"<details{opened}><summary><code>{name}</code> {title}</summary>\n\n{fenced(chr(10).join(rows))}\n"
        "\n</details>\n"
    )


def _told(issue: Issue) -> str:
    place = issue.place
    where = ":".join(str(part) for part in (place.path, place.line, place.column) if part is not None)
    rest = issue.text.split("\n", 1)[1:]
    body = "".join(f"\n  {line}" for block in rest for line in block.split("\n"))
    return f"{issue.severity.value}[{issue.code}]: {issue.message}\n  {where}{body}\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(left: int, right: int) -> str:
    return _row(*["---"] * left, *["---:"] * right)


def code(text: str) -> str:
    """A code span for a table's cell, on one line, with ticks longer than any inside.

    A bar would end the cell, and how it is escaped behind a backslash differs between renderers: such a name
    is written in character references."""
    plain = _cut(text)
    if "|" in plain:
        spelled = "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in plain)
        return f"<code>{spelled}</code>"
    if not plain:
        return ""
    fence = _longer_than(plain, 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def fenced(text: str) -> str:
    """A fenced block that nothing inside can close."""
    plain = printable(text).strip("\n")
    fence = _longer_than(plain, 3)
    return f"{fence}text\n{plain}\n{fence}"


def _longer_than(text: str, least: int) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def _quiet(text: str) -> str:
    """Text between HTML tags; an @ of its own mentions nobody."""
    return escape(_cut(text, _LONGEST_SUMMARY), quote=False).replace("@", "<code>@</code>")


def _cut(text: str, longest: int = _LONGEST_NAME) -> str:
    plain = one_line(text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
