"""The screen of ``kvplan fits``: the best models first, with what each holds."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.api.fitting import TOO_LARGE, FitResult, FitRow
from kvplan.api.ranking import USABLE
from kvplan.engines.folders import title_of
from kvplan.engines.traits import traits_of
from kvplan.files.arena import leaderboard
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.notes import help_lines
from kvplan.report.words import billions, command, count, size_words
from kvplan.units import GIB

UNVERIFIED, OTHER, ABOUT = "*", "+", "~"


def fits_screen(
    result: FitResult, top: int, typed: Sequence[str], other: FitResult | None = None, chosen: str = ""
) -> Screen:
    """typed: the GPU and what else ``size`` takes, as the user wrote it. other: what another engine's builds
    hold, where nothing fits. chosen: why this engine, where nobody named one."""
    screen = answer_screen(result, top)
    if chosen:
        screen += wrapped(chosen, indent=1, first="engine: ", style="dim")
    if other is not None and other.rows:
        name, row, more = other.engine.partition("@")[0], other.rows[0], len(other.rows) - 1
        others = f", and {more} more" if more else ""
        screen += help_lines((f"-e {name}: {row.model} fits as {row.format}{others}",))
    engine = result.engine.partition("@")[0]
    if result.rows:
        row = next((one for one in result.rows if not one.host_bytes), result.rows[0])
        stored = row.format == "as stored" or row.checkpoint != row.model
        words = [row.checkpoint, *typed, "-e", engine]
        words += ["-t", f"{result.tokens}"] if "-t" not in typed else []
        words += [] if stored else ["-q", row.format]
        words += ["--max-num-seqs", f"{row.max_num_seqs}"] if row.max_num_seqs else []
        # Without it the engine leaves layers in host memory where only the likely pool holds the load.
        unsure = row.safe_requests < result.requests and traits_of(engine).spills
        words += ["--n-gpu-layers", "999"] if unsure and not row.host_bytes else []
        screen += wrapped(command("kvplan", "size", *words), indent=1, first="look: ", style="dim")
    return screen


def row_line(row: FitRow) -> Screen:
    """One model that fits, in a line."""
    held = f"{count(row.requests, 'request')}, safely {row.safe_requests:,}"
    weights = size_words(row.weights_bytes_per_gpu)
    return [line(Span(f"{row.model}, {row.format}: {held}; {weights} of weights"))]


def answer_screen(result: FitResult, top: int) -> Screen:
    """The answer alone, as the library shows it too."""
    number = len(result.rows)
    every = number + sum(times for _, times in result.unfit)
    engine, _, version = result.engine.partition("@")
    what = f"{count(result.requests, 'request')} of {result.tokens:,} tokens"
    where = result.gpu if "+" in result.gpu else f"{result.gpus} × {result.gpu}"
    none = f"{number} of" if number else "No: none of"
    verb = "holds" if number == 1 else "hold"
    head = f"{none} {every} models {verb} {what} on {where} with {title_of(engine)} {version}."
    screen: Screen = wrapped(head, style="bold")
    if result.rows:
        screen += [BLANK, *_table(result.rows[:top], brief=_brief(result))]
        if not all(row.verified for row in result.rows[:top]):
            words = "its card was not compared with the published config"
            screen += wrapped(words, indent=1, first=f"{UNVERIFIED} ", style="warn")
    if number > top:
        more = f"{number - top} more: --top {number}, or part of a name: kvplan fits qwen"
        screen += wrapped(more, indent=1)
    if result.unfit:
        reasons = ", ".join(f"{times} {why}" for why, times in result.unfit)
        screen += [BLANK, *wrapped(reasons, indent=1, first="left out: ")]
        if TOO_LARGE in dict(result.unfit) and traits_of(engine).spills and not result.host_memory_bytes:
            words = f"with part of them in host memory {title_of(engine)} starts larger ones too:"
            screen += wrapped(f"{words} --host-memory 64GiB", indent=1, style="dim")
    if any(row.checkpoint != row.model for row in result.rows[:top]):
        others = f"{OTHER} another published checkpoint of the model (checkpoint in --json)"
        screen += wrapped(others, indent=1, style="dim")
    screen += _key(result, top)
    return screen


def _key(result: FitResult, top: int) -> Screen:
    """The meaning of the columns."""
    timed = any(row.speed is not None for row in result.rows[:top])
    words = f"arena: points on {leaderboard().source} ({ABOUT}: by type and size); weights: GiB on a GPU;"
    if timed:
        words += f" tokens/s: an estimate for one request, {result.tokens // 2:,} tokens in its cache"
        words += f" (those below {USABLE} at 0.7 of it come last);"
    words += "" if _brief(result) else " requests: likely (safe);"
    unsafe = any(row.max_model_len == 0 for row in result.rows[:top])
    none = " (none: only the likely pool holds one)" if unsafe else ""
    return wrapped(f"{words} longest: what safely starts{none}", indent=1, first="key:   ", style="dim")


def _brief(result: FitResult) -> bool:
    """Whether one user asked: speeds stand in the place of requests at once."""
    return result.requests == 1 and any(row.speed is not None for row in result.rows)


def _longest(length: int | None) -> str:
    if length is None:
        return "no limit"
    return f"{length:,}" if length else "none"


def _table(rows: tuple[FitRow, ...], *, brief: bool) -> Screen:
    hosted = any(row.host_bytes for row in rows)
    timed = any(row.speed is not None for row in rows)
    heads = (
        "model", "arena", *(() if brief else ("numbers",)), "format", "weights",
        *(("host",) if hosted else ()),
        *(("tokens/s",) if timed else ()), *(() if brief else ("requests",)), "longest",
    )  # fmt: skip
    cells: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    for row in rows:
        numbers = "" if row.parameters is None else billions(row.parameters)
        said = {
            "model": row.model if row.verified else f"{row.model} {UNVERIFIED}",
            "arena": "" if row.score is None else f"{'' if row.rated else ABOUT}{row.score:,}",
            "numbers": numbers,
            "format": (row.stored or row.format) + OTHER * (row.checkpoint != row.model),
            "weights": f"{row.weights_bytes_per_gpu / GIB:.1f}",
            "host": f"{row.host_bytes / GIB:.1f}" if row.host_bytes else "",
            "tokens/s": "" if row.speed is None else f"{row.speed.tokens_per_second:.0f}",
            "requests": f"{row.requests} ({row.safe_requests})",
            "longest": _longest(row.max_model_len),
        }
        cells.append([said[word] for word in heads])
    spare = ("numbers", "arena", "host", "longest", "weights")
    return table(cells, "".join("l" if word in ("model", "format") else "r" for word in heads), spare=spare)
