"""Memory of one more patch in each class's encoder: ``data/towers.json``, by scripts/trace_activations.py.

vLLM's own classes (0.32) are run eagerly on a few patches and their storages followed. Each row is one place
in the encoder where the most may be alive, linear in the widths; the largest row counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType

from kvplan.engines.vllm.classes import encoder_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.named import NamedTuple

FILE = Path(__file__).parents[1] / "data" / "towers.json"


class Row(NamedTuple):
    """Bytes for each unit of the tower's width, of a rank's share of it, of a rank's share of the MLP's
    width, of the language model's width; and the rest. ranks: those numbers of ranks that were run and have
    this place; of a single one the figures are that number's alone."""

    whole: Fraction
    own: Fraction
    mlp: Fraction
    out: Fraction
    rest: int
    ranks: tuple[int, ...]


class Widths(NamedTuple):
    """Of the tower, its MLP, the language model; input elements of a patch."""

    hidden: int
    mlp: int
    out: int
    pixels: int


class Tower(NamedTuple):
    """The rows of the peak, and of what stays (inputs and outputs) once it has run."""

    peak: tuple[Row, ...]
    kept: tuple[Row, ...]


@cache
def towers() -> Mapping[str, Tower]:
    """Class → its tower."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))["towers"]
    return MappingProxyType(
        {name: Tower(_rows(entry["peak"]), _rows(entry["kept"])) for name, entry in raw.items()}
    )


def traced(name: str) -> bool:
    """Whether it is known what the class's encoder takes."""
    return encoder_of(name).projected or name in towers()


def _rows(entries: list[list[str]]) -> tuple[Row, ...]:
    return tuple(
        Row(
            Fraction(whole),
            Fraction(own),
            Fraction(mlp),
            Fraction(out),
            int(rest),
            tuple(map(int, ranks.split())),
        )
        for whole, own, mlp, out, rest, ranks in entries
    )


class Cost(NamedTuple):
    """Bytes of one patch while the tower runs: likely, least and most. kept: once it has run, with the input;
    None where it was not run."""

    peak: int
    least: int
    most: int
    kept: int | None


def cost_of(name: str, widths: Widths, tp: int, release: tuple[int, ...]) -> Cost:
    """Memory of one patch on a rank of ``tp``, as well as it is known. name: a class, with `/audio` for its
    encoder of sound beside one of images."""
    encoder = encoder_of(name)
    if encoder.item_bytes:
        return Cost._make(encoder.item_bytes)
    if traced(name):
        peak, kept = patch_bytes(name, widths, tp, release)
        return Cost(peak, peak, peak, kept)
    # Measured on another class with the same encoder: within a quarter.
    if encoder.like:
        peak, _ = patch_bytes(encoder.like, widths, tp, release)
        return Cost(peak, peak * 3 // 4, peak * 5 // 4, None)
    # An encoder of its own: the range of all that were measured, at its widths.
    every = sorted(patch_bytes(other, widths, tp, release)[0] for other in towers())
    return Cost(every[len(every) // 2], every[0], every[-1], None)


def patch_bytes(name: str, widths: Widths, tp: int, release: tuple[int, ...]) -> tuple[int, int]:
    """(peak, kept) of one patch on a rank of ``tp``, in a class that is `traced`."""
    encoder = encoder_of(name)
    if encoder.projected:
        kept = 2 * (widths.pixels + widths.out)
        return kept, kept
    tower, rules = towers()[name], rules_of(release)
    peak = _largest(tower.peak, widths, tp)
    # Before 0.16 in two operations (vllm/model_executor/layers/activation.py: compile_native came with it).
    if rules.gate_kept and encoder.gated:
        peak += 2 * widths.mlp // tp
    # Before 0.13 (qwen2_vl.py, apply_rotary_pos_emb_vision); checked against one printed start-up.
    if rules.rotated_in_float32 and encoder.rotates:
        rotated = 10 * widths.hidden + 30 * widths.hidden // tp + 2 * widths.pixels + 480
        peak = max(peak, rotated)
    kept = max(1, _largest(tower.kept, widths, tp))
    return max(peak, kept), kept


def _largest(rows: tuple[Row, ...], widths: Widths, tp: int) -> int:
    """The row that takes most, of those that ``tp`` ranks have; of the next fewer ranks that were run where
    these were not (more ranks never have more)."""
    run = max(ranks for row in rows for ranks in row.ranks if ranks <= tp)
    fitting = [(row, tp if len(row.ranks) > 1 else run) for row in rows if run in row.ranks]
    return max(
        ceil(
            row.whole * widths.hidden
            + (row.own * widths.hidden + row.mlp * widths.mlp) / ranks
            + row.out * widths.out
            + row.rest
        )
        for row, ranks in fitting
    )
