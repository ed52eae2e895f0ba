"""The screen of what so many requests need at least."""

from __future__ import annotations

from fractions import Fraction

from kvplan.deployment.least import Both, Least
from kvplan.deployment.resolve import Deployment
from kvplan.report.layout import BLANK, Piece, Screen, Span, table, wrapped
from kvplan.report.words import count, engine_title, size_words
from kvplan.results import EngineRef
from kvplan.units import MIB


def least_screen(found: Least, deployment: Deployment) -> Screen:
    """One line for each thing that may be lowered; each by itself, everything else as asked."""
    model, choice, gpu = deployment.model, deployment.choice, deployment.settings.gpu
    title = engine_title(EngineRef(choice.engine.name, choice.version))
    where = "" if gpu is None else f" on {gpu.slug}"
    if found.pools > 1:
        where += f", dealt to {found.pools} pools"
    requests = f"{count(found.requests, 'request')} of {found.tokens:,} tokens"
    screen = wrapped(f"The least that lets {title} hold {requests} to {model.id}{where}, each changed alone.")
    rows: list[list[Piece]] = [["", Span("likely", "dim"), Span("safe", "dim")]]
    if found.memory is not None:
        rows.append([f"--kv-cache-memory {found.memory // MIB}MiB", *[size_words(found.memory)] * 2])
    if found.share is not None:
        rows.append([found.flag or "", *_both(found.share)])
    if found.gpus is not None and gpu is not None:
        rows.append([f"GPUs ({gpu.slug})", *_gpus(found.gpus, found.tensor_parallel_size)])
    if found.seqs is not None:
        rows.append(["--max-num-seqs", f"{found.seqs:,}", f"{found.seqs:,}"])
    screen += [BLANK, *table(rows, "lrr")]
    if found.why is not None:
        screen += [BLANK, *wrapped(found.why, indent=1, style="warn", first="warning: ")]
    if found.memory is not None and found.room is not None and found.memory > found.room:
        text = f"a GPU has only {size_words(found.room)} left for the cache: less than that memory"
        screen += [BLANK, *wrapped(text, indent=1)]
    return screen


def _both(found: Both) -> list[Piece]:
    return [_shown(one) for one in found]


def _gpus(gpus: Both, widths: Both | None) -> list[Piece]:
    """How many, and of how many ranks each server is, without which so many may hold nothing."""
    return [
        f"{number:,} · TP {width}" if width and width > 1 else _shown(number)
        for number, width in zip(gpus, widths or (None, None), strict=True)
    ]


def _shown(one: Fraction | int | None) -> Piece:
    if one is None:
        return Span("none", "bad")
    return f"{float(one):.2f}" if isinstance(one, Fraction) else f"{one:,}"
