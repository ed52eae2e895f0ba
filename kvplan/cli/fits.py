"""``kvplan fits``: which models fit a GPU."""

from __future__ import annotations

from typing import Any

from kvplan.api.fitting import fits, fits_as_build
from kvplan.api.load import gpus_of, load_gpu
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.fits_options import FITTED
from kvplan.cli.options import values_of
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import typed_words
from kvplan.engines import DEFAULT_ENGINE
from kvplan.engines.folders import title_of
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.gpus.find import is_name
from kvplan.gpu import Gpu
from kvplan.record import dumped, replace
from kvplan.report.fits import fits_screen

TOP = 20
_SHOWN = ("gpu", "engine", "quantization", "top")
_NOT_SIZED = ("engine", "quantization", "top")
"""Of the look at one row: its own build and engine stand there."""


def run(words: list[str], given: Given) -> Answer:
    """The list, or as JSON all of it."""
    check_color(given)
    values: dict[str, Any] = {}
    for option in FITTED:
        text = text_of(given, option.name)
        if text is not None:
            values[option.name] = values_of(option, text, f"{option.flags[0]} {text}")
    if values.get("requests") == 0:
        raise KvplanError("bad-usage", "--requests 0: nothing would have to fit", help="-n 1")
    named, models = values.get("gpu"), words[0] if words else None
    if named is None and models is not None and is_name(models):
        named, models = models, None  # kvplan fits rtx-3090
    gpu = load_gpu("auto") if named in (None, "auto") else named
    formats = values.get("quantization")
    result = fits(
        gpu,
        models=models,
        formats=None if formats is None else tuple(formats.split(",")),
        **{name: value for name, value in values.items() if name not in _SHOWN},
        **({"engine": values["engine"]} if "engine" in values else {}),
    )
    code = EXIT_OK if result.rows else EXIT_NO
    if is_given(given, "json"):
        shown = replace(result, rows=result.rows[: values.get("top", len(result.rows))])
        return Answer(data=dumped(shown), code=code)
    other = None if formats else fits_as_build(gpu, result, models=models)
    chosen = "" if "engine" in values else _why(gpu, result.engine)
    typed = typed_words({"gpu": named or "auto", **given}, FITTED, but=_NOT_SIZED)
    return Answer(fits_screen(result, values.get("top", TOP), typed, other, chosen), code=code)


def _why(gpu: Gpu | str, engine: str) -> str:
    """Why this engine, where nobody named one and it is not the usual default."""
    name = engine.partition("@")[0]
    if name == DEFAULT_ENGINE:
        return ""
    kind, _ = gpus_of(gpu)
    return f"{title_of(name)}, as {kind.slug} is a {kind.market} GPU; -e {DEFAULT_ENGINE} lists checkpoints"
