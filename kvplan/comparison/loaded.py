"""Prediction against a program's list of the models that it loaded: ``ollama ps``."""

from __future__ import annotations

from fractions import Fraction

from kvplan.comparison.results import ComparedRow, Comparison, Verdict, row_of
from kvplan.engines.doors import Ends, Loaded
from kvplan.engines.observed import Observation, Row
from kvplan.record import replace
from kvplan.results import SizeResult
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
    verdict, reason = _verdict(rows, found, taken, tolerance)
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


def _verdict(
    rows: list[ComparedRow], found: SizeResult, taken: Loaded | None, tolerance: Fraction
) -> tuple[Verdict, str]:
    compared = [row for row in rows if row.exact_predicted is not None]
    if not compared:
        if found.refusal is not None:
            return Verdict.CANNOT_COMPARE, found.refusal.message
        why = "the memory of such a start is not known GPU by GPU" if taken is None else "it lists no size"
        return Verdict.CANNOT_COMPARE, why
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
