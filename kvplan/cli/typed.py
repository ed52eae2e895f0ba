"""Settings as the words of a command line: the inverse of reading them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.cli.commands import Given
from kvplan.cli.options import OPTIONS, Option
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.later import later
from kvplan.model import Model
from kvplan.settings import LONGEST, Settings

if TYPE_CHECKING:
    from kvplan.cli import plan_options
else:
    plan_options = later("kvplan.cli", "plan_options")

_DEFAULTS = Settings()
_PAIRED = ("engine", "gpu", "speculative", "speculative_model")
"""Options that are written from more than the setting of their name."""


def typed_words(given: Given, options: Iterable[Option], *, but: Collection[str] = ()) -> list[str]:
    """The options that were given, as they can be typed again. but: names that are left out."""
    words: list[str] = []
    for option in options:
        value = given.get(option.name)
        if value is None or option.name in but:
            continue
        if isinstance(value, str):
            words += [_shortest(option), value]
        elif value or option.off_flags:
            words.append(_shortest(option) if value else option.off_flags[0])
    return words


def _shortest(option: Option) -> str:
    return option.flags[-1] if len(option.flags[-1]) == 2 else option.flags[0]


_OTHERWISE = ("host_memory",)
"""Options of both commands that mean something else to each."""


def words_to_plan(given: Given, *, but: Collection[str] = ()) -> list[str] | None:
    """The typed options of ``size`` as options of ``plan``; None where it lacks one of them, or that value:
    it would answer another question."""
    to_plan = {option.name: option for option in (*plan_options.PLANNED, *plan_options.SHARED)}
    for option in OPTIONS:
        value = given.get(option.name)
        if value is None or option.name in but:
            continue
        taken = to_plan.get(option.name)
        if taken is None or option.name in _OTHERWISE:
            return None
        try:
            if isinstance(value, str):
                taken.parse(value)
        except KvplanError:
            return None
    return typed_words(given, OPTIONS, but=but)


def size_command(model: str, engine: str, settings: Settings) -> list[str]:
    """``kvplan size …`` with which the same question is asked again: every setting that is not the default.

    model: as the user names it; engine: ``vllm@0.32``. What a request carries beside its text is in tokens.
    """
    words = ["kvplan", "size", model, "--engine", engine]
    if settings.gpu is not None:
        words += ["--gpu", _gpu(settings.gpu)]
    own = settings.own
    for option in OPTIONS:
        if option.name in _PAIRED:
            continue
        if option.name in own:
            words += _words(option, own[option.name])
        elif hasattr(_DEFAULTS, option.name):
            value = getattr(settings, option.name)
            if value != getattr(_DEFAULTS, option.name):
                words += _words(option, value)
    if settings.num_speculative_tokens:
        method = settings.speculative_method or "draft_model"
        words += ["--speculative", f"{method}:{settings.num_speculative_tokens}"]
    if settings.speculative_model is not None:
        words += ["--speculative-model", _model(settings.speculative_model)]
    return words


def _words(option: Option, value: object) -> list[str]:
    if isinstance(value, bool):
        return [option.flags[0]] if value else list(option.off_flags[:1])
    return [option.flags[0], _text(option, value)]


def _text(option: Option, value: object) -> str:
    if option.name == "max_model_len" and value == LONGEST:
        return "auto"
    if isinstance(value, tuple):
        return ",".join(_text(option, one) for one in value)
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else repr(float(value))
    return str(value) + ("B" if option.metavar == "SIZE" else "")


def _gpu(gpu: Gpu) -> str:
    return gpu.memory_marketing if gpu.slug.startswith("unlisted-") else gpu.slug


def _model(model: Model) -> str:
    """A card by its id, another source by where it was read."""
    return model.id if model.source.startswith("card:") else model.source
