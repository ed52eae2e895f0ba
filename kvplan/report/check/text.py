"""The check on a terminal: the verdict in one sentence, then every plan, failures with their lines."""

from __future__ import annotations

from kvplan.errors import EXIT_NO, KvplanError
from kvplan.plans.findings import CheckedPlan, CheckReport, Finding, Moved, Severity
from kvplan.report.check.fleet import fleet_screen, lack
from kvplan.report.check.shown import difference_words, measured_words, sentence
from kvplan.report.layout import BLANK, INDENT, Screen, Span, columns, line, plain, table, wrapped
from kvplan.report.words import count
from kvplan.units import human_bytes

_STYLES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "dim"}
_ASIDE = 12
"""Columns that a line of a file leaves free."""


def render(report: CheckReport) -> str:
    """The screen without colour."""
    return plain(screen(report))


def screen(report: CheckReport, *, quiet: bool = False) -> Screen:
    """Verdict, plans, the fleet, what changed, what to type next. Notes are shown where one plan is checked.
    quiet: the verdict, plans that fail with their errors, and the fleet where it is too small."""
    if quiet:
        return _quiet(report)
    alone = len(report.plans) == 1
    rows: Screen = [*_verdict(report), BLANK]
    passing: Screen = []
    for one in report.plans:
        shown = [finding for finding in one.findings if alone or finding.severity is not Severity.NOTE]
        proofs = _proofs(one) if alone else []
        if one.passed and not shown:
            passing += [*_head(one), *proofs]
            continue
        rows += [*_plan(one, shown, proofs), BLANK]
    if passing:
        rows += [*passing, BLANK]
    if report.fleet is not None:
        rows += [*fleet_screen(report.fleet), BLANK]
    if report.baseline:
        rows += [*_changes(report), BLANK]
    rows += _next(report, alone)
    while rows and not rows[-1]:
        rows.pop()
    return rows


def plan_line(one: CheckedPlan) -> Screen:
    """One plan in a line: whether it passes, and its summary or its first error."""
    if one.error is not None:
        return [line(Span(f"{one.name}: {one.error.message}"))]
    wrong = next((found for found in one.findings if found.severity is Severity.ERROR), None)
    said = one.summary if wrong is None else wrong.message
    return [line(Span(f"{one.name}: {'passes' if one.passed else 'fails'}{said and '; '}{said}"))]


def finding_line(found: Finding) -> Screen:
    """One finding in a line."""
    return [line(Span(f"{found.severity.value}[{found.code}]: {found.message}"))]


def _verdict(report: CheckReport) -> Screen:
    enough = report.fleet is None or report.fleet.passed
    style = "good" if enough and all(one.passed for one in report.plans) else "bad"
    return wrapped(sentence(report), style=style)


def _quiet(report: CheckReport) -> Screen:
    """Failures first, as a log is read from its end: then the verdict."""
    rows: Screen = []
    for one in report.plans:
        if not one.passed:
            wrong = [finding for finding in one.findings if finding.severity is Severity.ERROR]
            rows += [*_plan(one, wrong, []), BLANK]
    if report.fleet is not None and not report.fleet.passed:
        for kind in report.fleet.kinds:
            rows += wrapped(lack(kind), style="bad") if kind.missing else []
        rows.append(BLANK)
    return [*rows, *_verdict(report)]


def _name(one: CheckedPlan) -> str:
    return one.name if one.environment is None else f"{one.name} ({one.environment})"


def _head(one: CheckedPlan) -> Screen:
    word, style = ("ok", "good") if one.passed else ("FAIL", "bad")
    if one.error is not None and one.error.exit_code != EXIT_NO:
        word = "ERR"
    about = _name(one) if _name(one) == one.path else f"{_name(one)}  {one.path}"
    about = f"{_name(one)}: {one.summary}" if one.passed and one.summary else about
    first, *rest = wrapped(about, first=" " * 6) or [line(" " * 6)]
    return [line(Span(f"{word:<4}", style), "  ", first[0].text[6:]), *rest]


def _proofs(one: CheckedPlan) -> Screen:
    """Measurements of the plan, a sentence a receipt."""
    rows: Screen = []
    for proof in one.evidence:
        rows += wrapped(measured_words(proof), style="dim", first=" " * 6, hang=6)
    return rows


def _plan(one: CheckedPlan, shown: list[Finding], proofs: Screen) -> Screen:
    rows = _head(one)
    if one.error is not None:
        return [*rows, *_error(one.error)]
    if one.summary and not one.passed:
        rows += wrapped(one.summary + ".", indent=1)
    rows += proofs
    for finding in shown:
        rows += _finding(finding)
    return rows


def _error(error: KvplanError) -> Screen:
    return [
        line(Span(text[: columns() * 3], "bad" if not at else "")) for at, text in enumerate(_indented(error))
    ]


def _indented(error: KvplanError) -> list[str]:
    rows: list[str] = []
    for text in error.format().split("\n"):
        lead = INDENT + " " * (len(text) - len(text.lstrip()))
        if " | " in text:
            rows.append(INDENT + text)
        else:
            rows += [
                "".join(piece.text for piece in row)
                for row in wrapped(text.strip(), first=lead, hang=len(lead) + 2)
            ]
    return rows


def _finding(finding: Finding) -> Screen:
    rows = wrapped(
        f"{finding.severity.value}[{finding.code}]: {finding.message}",
        style=_STYLES[finding.severity],
        first=INDENT,
        hang=4,
    )
    if finding.severity is Severity.ERROR and finding.mark is not None:
        rows += [
            line(INDENT, INDENT, text)
            for text in finding.mark.show(columns() - _ASIDE).replace("\t", " ").split("\n")
        ]
    for text in finding.detail:
        rows += wrapped(text, style="dim", first=INDENT * 2)
    for text in finding.help:
        rows += wrapped(text, first=INDENT + "help: ", hang=8)
    return rows


def amount(value: int, unit: str) -> str:
    """A figure as people read it: ``53.56 GiB``, ``12,345``, ``7.20``."""
    if unit == "bytes":
        return human_bytes(value) if value >= 0 else f"-{human_bytes(-value)}"
    if unit == "millionths":
        cents = round(abs(value) / 10_000)
        return f"{'-' if value < 0 else ''}{cents // 100:,}.{cents % 100:02d}"
    if unit == "share":
        return f"{value / 100:.2f} %"
    return f"{value:,}"


def _changes(report: CheckReport) -> Screen:
    """Differences from the baseline, a table a plan."""
    rows: Screen = []
    same = 0
    for before, after in report.pairs():
        one = after or before
        assert one is not None
        if before is None or after is None:
            rows += wrapped(f"{_name(one)}: {'new' if before is None else 'gone'}", first=INDENT, hang=4)
            continue
        moved = report.moved_of(before, after)
        cells = _differences(before, after, moved)
        if not cells:
            same += 1
            continue
        rows += wrapped(_name(one), first=INDENT, hang=4)
        heads = ("", "before", "now", "difference", *(("moved by",) if moved is not None else ()))
        align = "lrrr" + "l" * (moved is not None)
        rows += table([heads, *cells], align, indent=2, gap="  ", spare=("difference",))
        for one_why in () if moved is None else moved.why[:_MOST_WHY]:
            rows += wrapped(difference_words(one_why), first=INDENT * 2, hang=6, style="dim")
    if same:
        rows.append(line(INDENT, Span(f"{count(same, 'plan')} unchanged", "dim")))
    return [line("Against the baseline"), *rows] if rows else []


_MOST_WHY = 6


def _differences(before: CheckedPlan, after: CheckedPlan, moved: Moved | None) -> list[tuple[str, ...]]:
    """Figures before and now, how far they moved and, since a lock, by what; then the verdict, where it is
    another."""
    cells: list[tuple[str, ...]] = []
    by: tuple[str, ...] = ()
    names = dict.fromkeys((fact.name, fact.unit) for side in (before, after) for fact in side.facts)
    for name, unit in names:
        old, new = before.fact(name), after.fact(name)
        if old == new:
            continue
        difference = amount(new - old, unit) if old is not None and new is not None else ""
        if difference and not difference.startswith("-"):
            difference = f"+{difference}"
        was, now = (amount(value, unit) if value is not None else "none" for value in (old, new))
        by = () if moved is None else (" or ".join(moved.by(name)),)
        cells.append((name.replace("_", " "), was, now, difference, *by))
    if before.passed != after.passed:
        word = {True: "passes", False: "fails"}
        cells.append(("check", word[before.passed], word[after.passed], "", *("",) * (moved is not None)))
    return cells


def _next(report: CheckReport, alone: bool) -> Screen:
    notes = sum(finding.severity is Severity.NOTE for one in report.plans for finding in one.findings)
    if alone or not notes:
        return []
    return [line(Span(f"{count(notes, 'note')} not shown: check one plan, or --format json", "dim"))]
