"""The screen of ``kvplan quality``."""

from __future__ import annotations

from kvplan.proof.numerics.results import InputErrors, QualityResult
from kvplan.report.layout import BLANK, Piece, Screen, Span, table, wrapped
from kvplan.units import MIB


def quality_screen(result: QualityResult, *, verbose: bool = False) -> Screen:
    """One row a format: bytes, what is saved, errors; with ``verbose`` one table a set of inputs more."""
    length = f"{result.tokens:,}"
    stored = f"{result.sample_tokens:,} stored tokens"
    head = f"What KV formats cost {result.model}: errors of {stored} against float64."
    screen: Screen = [*wrapped(head, style="bold"), BLANK, *_table(result)]
    screen += [BLANK]
    for inputs in result.inputs:
        screen += wrapped(f"{inputs.description}", indent=1, first=f"{inputs.inputs}: ", style="dim")
    drawn = len(result.inputs) > 1
    output = " and ".join(inputs.inputs for inputs in result.inputs) if drawn else "output"
    of = "attention's output" if drawn else "that of attention"
    scales = "taken from the numbers" if result.calibrated else "1 (--calibrated: taken from the numbers)"
    screen += wrapped(
        f"errors are relative root mean squares; {output}: {of}; KV: of a request of {length} tokens; the one"
        f" scale of a whole tensor is {scales}",
        indent=1, first="key:  ", style="dim",
    )  # fmt: skip
    for note in result.notes:
        screen += wrapped(note, indent=1, first="note: ", style="dim")
    if verbose:
        for inputs in result.inputs:
            screen += [
                BLANK,
                *wrapped(f"{inputs.inputs}, layer by layer", style="bold"),
                *_layers(result, inputs),
            ]
    return screen


def _table(result: QualityResult) -> Screen:
    only = result.inputs[0] if len(result.inputs) == 1 else None
    heads = ["format", "KV, MiB", "saved"]
    outputs = ["output", "worst layer"] if only else [inputs.inputs for inputs in result.inputs]
    heads += ["keys", "values", *outputs]
    cells: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    for place, cost in enumerate(result.formats):
        size = "-" if cost.kv_bytes_per_request is None else mebibytes(cost.kv_bytes_per_request)
        saved = "-" if not cost.saved else f"{100 * cost.saved:.0f} %"
        row: list[Piece] = [cost.format, size, saved]
        if only is not None:
            mean, worst = only.mean(place), only.worst(place)
            row += [*map(shown, (mean.key, mean.value, mean.output))]
            row.append(f"{shown(worst.errors[place].output)} ({worst.layer})")
        else:
            means = [inputs.mean(place) for inputs in result.inputs]
            row += [shown(means[0].key), shown(means[0].value), *(shown(mean.output) for mean in means)]
        cells.append(row)
    return table(cells, "l" + "r" * (len(heads) - 1))


def mebibytes(size: int) -> str:
    """``1,024``, ``3.2``."""
    value = size / MIB
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(value: float) -> str:
    """Two significant digits.

    >>> percent(0.91), percent(13.0), percent(140.0)
    ('0.91 %', '13 %', '140 %')
    """
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def shown(share: float) -> str:
    """``0.53 %``, ``34 %``; 0 of nothing."""
    return percent(100 * share) if share else "0"


def _layers(result: QualityResult, inputs: InputErrors) -> Screen:
    heads = ("format", "keys", "values", "output", "weight moved")
    cells: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    for one in inputs.layers:
        for cost, error in zip(result.formats, one.errors, strict=True):
            cells.append([cost.format, *map(shown, (error.key, error.value, error.output, error.moved))])
    rows = table(cells, "lrrrr")
    screen, count = rows[:1], len(result.formats)
    for place, one in enumerate(inputs.layers):
        name = f"layer {one.layer}" if one.layers == 1 else f"{one.layers} layers, {one.layer}"
        screen += wrapped(f"{name}: {one.shape}", indent=1)
        screen += rows[1 + place * count : 1 + (place + 1) * count]
    return screen
