"""Prediction against a program's list of the models that it loaded (``ollama ps``), and against what it says
of a model's file (``ollama show``, ``lms ps``)."""

from __future__ import annotations

from fractions import Fraction

from kvplan.comparison.results import ComparedRow, Comparison, Unit, Verdict, row_of
from kvplan.engines.doors import Ends, Loaded, Stored
from kvplan.engines.observed import Figure, Observation, Row
from kvplan.record import replace
from kvplan.results import EngineRef, ModelRef, SizeResult
from kvplan.units import gib


def compare_loaded(
    found: SizeResult,
    taken: Loaded | None,
    observation: Observation,
    row: Row,
    *,
    tolerance: Fraction,
    recognised: dict[str, str],
) -> Comparison:
    """The bytes of a loaded model and the share of them on the GPU. found: the answer for it, as the program
    starts it; taken: what the program would list, None where that is not known."""
    rows = _rows(row, taken, tolerance)
    nothing = "the memory of such a start is not known GPU by GPU" if taken is None else "it lists no size"
    if found.refusal is not None:
        nothing = found.refusal.message
    verdict, reason = _verdict(rows, nothing, tolerance)
    return Comparison(
        model=found.model,
        engine=found.engine,
        settings=found.settings,
        recognised=recognised,
        rows=tuple(rows),
        verdict=verdict,
        reason=reason,
        notes=tuple(dict.fromkeys((*(note.text for note in observation.notes), *found.warnings))),
    )


def _rows(row: Row, taken: Loaded | None, tolerance: Fraction) -> list[ComparedRow]:
    found = []
    if row.loaded_bytes is not None:
        low, likely, high = (None, None, None) if taken is None else _sum(taken)
        one = row_of("loaded_bytes", "bytes", row.loaded_bytes, likely, low, high)
        if low is not None and high is not None:
            one = replace(one, explanation=f"estimated: {gib(low)} … {gib(high)}")
            near = one.off_by() <= tolerance
            one = replace(one, overlaps=one.overlaps or near)
        found.append(replace(one, inside=one.inside_by() > tolerance))
    if row.loaded_gpu_percent is not None:
        low, likely, high = (None, None, None) if taken is None else _share(taken)
        found.append(row_of("loaded_gpu_percent", "%", row.loaded_gpu_percent, likely, low, high))
    return found


def _sum(taken: Loaded) -> Ends:
    low, likely, high = (gpu + host for gpu, host in zip(taken.gpu, taken.host, strict=True))
    return low, likely, high


def _share(taken: Loaded) -> Ends:
    """Per cent on the GPU: the rest of the host's, rounded (ollama/ollama cmd/cmd.go)."""

    def share(gpu: int, host: int) -> int:
        return 100 - round(Fraction(100 * host, gpu + host)) if gpu + host else 0

    ends = (share(taken.gpu[0], taken.host[2]), share(taken.gpu[2], taken.host[0]))
    return min(ends), share(taken.gpu[1], taken.host[1]), max(ends)


def compare_stored(
    model: ModelRef,
    engine: EngineRef,
    stored: Stored,
    observation: Observation,
    row: Row,
    *,
    tolerance: Fraction,
    recognised: dict[str, str],
    notes: tuple[str, ...] = (),
) -> Comparison:
    """A model's file: bytes, parameters, widths. stored: what kvplan says of it."""
    ends: tuple[tuple[str, Unit, Ends | None], ...] = (
        ("file_bytes", "bytes", stored.bytes),
        ("weights_bytes", "bytes", stored.weights),
        ("parameters", "numbers", stored.parameters),
        ("own_context", "tokens", _exactly(stored.context)),
        ("embedding_length", "numbers", _exactly(stored.width)),
    )
    rows = [
        _of_file(name, unit, figure, taken, tolerance)
        for name, unit, taken in ends
        if (figure := row.get(name)) is not None
    ]
    verdict, reason = _verdict(rows, "it lists nothing that a file has", tolerance)
    return Comparison(
        model=model,
        engine=engine,
        settings={},
        recognised=recognised,
        rows=tuple(rows),
        verdict=verdict,
        reason=reason,
        notes=tuple(dict.fromkeys((*(note.text for note in observation.notes), *notes))),
    )


def _exactly(value: int | None) -> Ends | None:
    return (value, value, value) if value else None


def _of_file(name: str, unit: Unit, figure: Figure, taken: Ends | None, tolerance: Fraction) -> ComparedRow:
    low, likely, high = (None, None, None) if taken is None else taken
    one = row_of(name, unit, figure, likely, low, high)
    if low != high and low is not None:
        one = replace(one, overlaps=one.overlaps or one.off_by() <= tolerance)
    return replace(one, inside=one.inside_by() > tolerance)


def _verdict(rows: list[ComparedRow], nothing: str, tolerance: Fraction) -> tuple[Verdict, str]:
    """nothing: why there is nothing to compare, where there is not."""
    compared = [row for row in rows if row.predicted is not None]
    if not compared:
        return Verdict.CANNOT_COMPARE, nothing
    off = [row for row in compared if not row.overlaps]
    percent = f"{float(tolerance * 100):g} %"
    if off:
        ends = f"{off[0].printed} is outside of what the rules leave open"
        return Verdict.DIFFERS, f"{off[0].label}: {ends}"
    inside = next((row for row in compared if row.inside), None)
    if inside is not None:
        far = f"{float(inside.inside_by() * 100):.1f} %, more than {percent}"
        return Verdict.INSIDE, f"{inside.label} is off by {far}, inside the estimate's interval"
    return Verdict.AGREES, f"all within {percent}"
