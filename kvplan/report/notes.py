"""Lines that many screens end with: ways to make it fit, warnings, sources."""

from __future__ import annotations

from collections.abc import Collection

from kvplan.later import regex
from kvplan.report.layout import Line, Screen, Section, Span, one_line, wrapped
from kvplan.report.words import count, engine_title, settings_words
from kvplan.results import NOISE, SizeResult


def styled(row: Line, part: str, style: str) -> Line:
    """The line with the first occurrence of ``part`` in the given style."""
    text = "".join(piece.text for piece in row)
    before, found, after = text.partition(part)
    if not found:
        return row
    return tuple(Span(piece, kind) for piece, kind in ((before, ""), (found, style), (after, "")) if piece)


def none_holds(wanted: Collection[int]) -> Screen:
    """The first line of a table where no row is a yes: the exit code says no, so does the screen."""
    if len(wanted) == 1:
        text = f"none of these holds {count(min(wanted), 'request')} at once."
    else:
        text = "none of these holds the requests asked for."
    return [styled(row, "No:", "bad") for row in wrapped(f"No: {text}")]


def too_few(number: str, holds: int, wanted: int) -> str:
    """A count in a table; ``no`` before it where fewer are held than were asked for."""
    return f"no {number}" if holds < wanted and wanted > 1 else number


def help_lines(helps: tuple[str, ...]) -> Screen:
    """``help: …`` lines, wrapped."""
    return [row for text in helps for row in wrapped(text, first="help: ")]


def warning_lines(warnings: tuple[str, ...]) -> Screen:
    screen: Screen = []
    for text in warnings:
        rows = wrapped(text, indent=1, first="warning: ")
        screen += [styled(rows[0], "warning:", "warn"), *rows[1:]]
    return screen


def source_lines(result: SizeResult, rules_file: str) -> Screen:
    """Which settings, which rules and which file the answer came from."""
    known = {} if result.deployment is None else result.deployment.chosen
    chosen = "; ".join(f"{name} {why}" for name, why in known.items())
    return [
        *wrapped(settings_words(result.settings), style="dim", indent=1, first="with:   "),
        *(wrapped(chosen, style="dim", indent=1, first="chosen: ") if chosen else ()),
        *wrapped(f"{engine_title(result.engine)} ({rules_file})", style="dim", indent=1, first="rules:  "),
        *wrapped(result.model.source, style="dim", indent=1, first="model:  "),
    ]


_ASSUMED = " (assumed)"


def rules_words(result: SizeResult) -> str:
    """``vLLM 0.33, bfloat16 cache``: whose rules, on which GPU where none was named, and in which format the
    cache lies."""
    settings = result.settings
    forms = dict.fromkeys(
        str(settings[name])
        for name in ("kv_cache_dtype", "cache_type_k", "cache_type_v")
        if settings.get(name) is not None
    )
    gpu = str(settings.get("gpu") or "")
    where = f" as on {gpu.removesuffix(_ASSUMED)} (no GPU named)" if gpu.endswith(_ASSUMED) else ""
    return engine_title(result.engine) + where + (f", {' and '.join(forms)} cache" if forms else "")


_UNVERIFIED = regex(r"the card of .+ is (unverified \(.+\))")


def unverified_words(warnings: tuple[str, ...]) -> str:
    """``, unverified (typed from memory)`` where the card says so, else nothing."""
    found = next((match[1] for text in warnings if (match := _UNVERIFIED.fullmatch(text))), "")
    return f", {found}" if found else ""


def but_unverified(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """The warnings without what `unverified_words` says of them."""
    return tuple(text for text in warnings if not _UNVERIFIED.fullmatch(text))


def basis_line(result: SizeResult, *, marks: bool = False) -> Screen:
    """Rules and model. marks: also whether its card is unverified, where no warning says so."""
    card = f"{result.model.source}{unverified_words(result.warnings) if marks else ''}"
    return wrapped(f"{rules_words(result)}; model {card}", indent=1, style="dim", first="rules:  ")


def short_warnings(warnings: tuple[str, ...], most: int) -> Screen:
    """As many as there is room for, each in full (its end says what to do); and how many more there are."""
    texts = tuple(dict.fromkeys(warnings))
    return warning_lines(texts[:most]) + _others(len(texts) - most, shown=most)


def warning_section(
    warnings: tuple[str, ...], most: int, rank: int, *, close: bool = False, least: int = 0
) -> Section:
    """The warnings of a screen with few lines: where there is no room fewer of them, each in full, and never
    fewer than ``least``. That a request fits whose answer is noise stands first, and is always there."""
    noise = [text for text in warnings if text.endswith(NOISE)]
    texts, least = tuple(dict.fromkeys((*noise, *warnings))), least + len(noise)
    most = min(max(most, least), len(texts))
    first, *less = [short_warnings(texts, number) for number in range(most, min(least, most) - 1, -1)]
    return Section(first, less=tuple(less), close=close, shrinks=rank)


def _others(number: int, *, shown: int) -> Screen:
    words = "more warning" if shown else "warning"
    return [one_line(f"{count(number, words)}: -v", style="warn")] if number > 0 else []


STDIN = "-"


def next_line(text: str) -> Screen:
    """The command to type next; nothing where that would be read from standard input, which is used up."""
    return [] if STDIN in text.split() else wrapped(text, indent=1, style="dim", first="next:   ")


def more_line(text: str) -> Screen:
    """Further options and commands."""
    return wrapped(text, indent=1, style="dim", first="more:   ")
