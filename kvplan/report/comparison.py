"""The screen of ``kvplan compare``: the verdict in a sentence, the figures, why, what to type next."""

from __future__ import annotations

from kvplan.comparison import ComparedRow, Comparison, Verdict
from kvplan.engines.observed import Observation
from kvplan.report.layout import BLANK, Line, Piece, Screen, Span, line, shorten, table, wrapped
from kvplan.report.words import command, count, engine_title, settings_words, size_words

_STYLE = {
    Verdict.AGREES: "good",
    Verdict.INSIDE: "warn",
    Verdict.DIFFERS: "bad",
    Verdict.CANNOT_COMPARE: "warn",
}
_NAME_WIDTH = 60
_NOTES_SHOWN, _NOTES_IN_SHORT = 12, 3


def comparison_screen(
    found: Comparison,
    observation: Observation,
    *,
    other_model: str | None = None,
    typed: str | None = None,
    whole: bool = False,
) -> Screen:
    """The answer. other_model: the card that the log names, where it is not the one compared; whole: also
    every note and setting."""
    lines = f" ({observation.lines:,} lines)" if observation.lines else ""
    screen = _sentence(found, f"the {observation.source}{lines}")
    if other_model is not None:
        screen += wrapped(
            f"the {observation.source} names {other_model}, not the model compared", first="note: "
        )
    if found.rows:
        screen += [BLANK, *_table(found)]
    reasons = [(row, row.explanation) for row in found.rows if row.explanation]
    if reasons:
        screen.append(BLANK)
    for texts, names in _by_text(reasons):
        screen += wrapped(texts, indent=1, first=f"{names}: ", hang=2)
    if found.notes:
        screen.append(BLANK)
        for note in found.notes[: _NOTES_SHOWN if whole else _NOTES_IN_SHORT]:
            screen += wrapped(note, style="dim", indent=1, first="note:   ")
        if not whole and len(found.notes) > _NOTES_IN_SHORT:
            screen += wrapped(f"and {len(found.notes) - _NOTES_IN_SHORT} more: -v", style="dim", indent=5)
    return [
        *screen,
        BLANK,
        *_sources(found, observation, whole=whole),
        *_next(found, observation, typed, whole),
    ]


def answer_screen(found: Comparison) -> Screen:
    """The answer without what it was read from: sentence, figures, why."""
    screen = _sentence(found, "the report")
    if found.rows:
        screen += [BLANK, *_table(found)]
    for texts, names in _by_text([(row, row.explanation) for row in found.rows if row.explanation]):
        screen += wrapped(texts, indent=1, first=f"{names}: ", hang=2)
    for note in found.notes[:_NOTES_IN_SHORT]:
        screen += wrapped(note, style="dim", indent=1, first="note:   ")
    return screen


def _sentence(found: Comparison, where: str) -> Screen:
    name = found.model.id if found.model is not None else "the model"
    engine = engine_title(found.engine) if found.engine.version else found.engine.name
    compared = [row for row in found.rows if row.exact_predicted is not None]
    if found.verdict is Verdict.CANNOT_COMPARE:
        mark, text = "Cannot compare", f"Cannot compare {name} under {engine} with {where}: {found.reason}."
    elif found.verdict is Verdict.AGREES:
        mark = "agrees"
        text = f"{engine} agrees on {count(len(compared), 'figure')} of {name}: {found.reason}."
    elif found.verdict is Verdict.INSIDE:
        mark = "Inside:"
        text = f"Inside: {engine} does not rule out {where} of {name}: {found.reason}."
    else:
        mark = "No:"
        text = f"No: {engine} and {where} differ on {name}: {found.reason}."
    return [_styled(row, mark, _STYLE[found.verdict]) for row in wrapped(text)]


def _styled(row: Line, part: str, style: str) -> Line:
    text = "".join(piece.text for piece in row)
    before, hit, after = text.partition(part)
    if not hit:
        return row
    return tuple(Span(piece, kind) for piece, kind in ((before, ""), (hit, style), (after, "")) if piece)


def _table(found: Comparison) -> Screen:
    rows: list[list[Piece]] = [
        [Span(title, "dim") for title in ("", "predicted", "reported", "difference", "")]
    ]
    for row in found.rows:
        style = (
            "" if row.predicted is None else "bad" if not row.overlaps else "warn" if row.inside else "good"
        )
        rows.append(
            [
                row.label,
                "-" if row.predicted is None else _figure(row, row.predicted),
                _figure(row, row.reported),
                _difference(row),
                Span(_mark(row), style),
            ]
        )
    return table(rows, "lrrrl", spare=("difference",))


def row_line(row: ComparedRow) -> Screen:
    """One figure in a line."""
    seen = f"reported {_figure(row, row.reported)}"
    said = seen if row.predicted is None else f"predicted {_figure(row, row.predicted)}, {seen}: {_mark(row)}"
    return [line(Span(f"{row.label}: {said}"))]


def _mark(row: ComparedRow) -> str:
    if row.predicted is None:
        return ""
    if row.inside:
        return "inside"  # the interval of the estimate
    return "agrees" if row.overlaps else "differs"


def _figure(row: ComparedRow, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if row.unit == "bytes" and isinstance(value, int):
        return f"-{size_words(-value)}" if value < 0 else size_words(value)
    if isinstance(value, int):
        return f"{value:,} %" if row.unit == "%" else f"{value:,}"
    return f"{float(value):,.2f}x"  # type: ignore[arg-type]


def _difference(row: ComparedRow) -> str:
    """The difference that the rounding of the log does not explain, in per cent of the report."""
    if row.predicted is None or row.unit == "" or row.ratio is None:
        return ""
    if row.overlaps and row.exact_predicted == row.exact_reported:
        return "0"
    if row.overlaps:
        return "rounding" if row.unit != "bytes" else _signed(row)
    return _signed(row)


def _signed(row: ComparedRow) -> str:
    assert row.exact_ratio is not None
    percent = float((row.exact_ratio - 1) * 100)
    return f"{percent:+,.2f} %"


def _by_text(reasons: list[tuple[ComparedRow, str]]) -> list[tuple[str, str]]:
    """(explanation, names of the figures it explains), in the order of the table."""
    names: dict[str, list[str]] = {}
    for row, text in reasons:
        names.setdefault(text, []).append(row.label)
    return [(text, ", ".join(each)) for text, each in names.items()]


def _sources(found: Comparison, observation: Observation, *, whole: bool) -> Screen:
    told = ", ".join(f"{name} {where}" for name, where in found.recognised.items())
    screen: Screen = []
    if told:
        screen += wrapped(told, style="dim", indent=1, first="read:   ")
    if found.settings and whole:
        screen += wrapped(settings_words(found.settings), style="dim", indent=1, first="with:   ")
    version = f", printed by {observation.engine_version}" if observation.engine_version else ""
    screen += wrapped(
        f"{found.engine.name} {found.engine.version}{version}".strip(),
        style="dim",
        indent=1,
        first="rules:  ",
    )
    if found.model is not None and whole:
        screen += wrapped(shorten(found.model.source, _NAME_WIDTH), style="dim", indent=1, first="model:  ")
    return screen


def _next(found: Comparison, observation: Observation, typed: str | None, whole: bool) -> Screen:
    """The command to type next."""
    model = typed or "MODEL"
    if typed is None and found.model is not None:
        card = found.model.source.removeprefix("card:")
        model = card if card != found.model.source else found.model.id
    engine = f"{found.engine.name}@{found.engine.version}" if found.engine.version else found.engine.name
    words = ["kvplan", "explain", model, "--engine", engine]
    screen = [line(Span(f"why:    {command(*words)}", "dim"), indent=1)]
    if found.verdict is not Verdict.AGREES and "kv_cache_memory" not in found.recognised:
        more = "as it was started: --tp, --kv-cache-dtype, --gpu, --engine NAME@…"
    else:
        more = "--json, --tolerance 1%" + (", --watch" if observation.source != "log" else "")
    return [*screen, *wrapped(more if whole else f"-v, {more}", style="dim", indent=1, first="more:   ")]
