"""From parsed options to the questions: which models, which engines, which settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from kvplan.api import OF_A_QUESTION, load_model, make_settings, planned
from kvplan.api.choosing import usual_engine
from kvplan.cli.commands import Given, text_of
from kvplan.cli.given import gather
from kvplan.cli.plan_word import is_plan_file, only, plan_of
from kvplan.cli.terminal import COLOR_WORDS
from kvplan.engines import ENGINES, check_options
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.engines.doors import head_of, through
from kvplan.errors import KvplanError
from kvplan.files.cards.ollama_names import named_in
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.questions import kv_dtypes_to_compare
from kvplan.settings import MEDIA, Settings

ALL = "all"


class Question(NamedTuple):
    """Everything one command line asks for. names: as typed; lengths, counts: as given, for ladders.
    plan: where a plan file asks."""

    names: list[str]
    models: list[Model]
    choices: list[Choice]
    variants: list[Settings]
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    forgiving: bool
    plan: Plan | None = None


def question(names: list[str], given: Given, *, compare_dtypes: bool = False) -> Question:
    """Load the models, choose the engines, and make one Settings for each combination of the lists.

    forgiving: engines or dtypes were not named one by one, so one that does not apply is only a row.
    """
    if names.count("-") > 1:
        raise KvplanError("bad-usage", "standard input can be one model only")
    if any(is_plan_file(name) for name in names):
        return _of_plan(names, given)
    values = gather(given)
    specs = values.pop("engine", None)
    every = specs is not None and ALL in specs
    named = None if specs is None else [choose(spec) for spec in (list(ENGINES) if every else specs)]
    lengths = values.pop("tokens", [None])
    if 0 in lengths:
        raise KvplanError("bad-setting", "a request has at least one token", help="--tokens 4096")
    counts = values.pop("requests", [None])
    dtypes = values.pop("kv_cache_dtype", [None])
    weights_from = values.pop("weights_from", None)
    head = head_of(named[0] if named else None)
    models = [load_model(named_in(head, name), weights_from=weights_from) for name in names]
    if compare_dtypes:
        dtypes = list(dict.fromkeys(name for model in models for name in kv_dtypes_to_compare(model)))
    media = {name: values.pop(name) for name in MEDIA if name in values}
    base = make_settings(**values)
    choices = named or [choose(usual_engine(models, base.quantization, (base.gpu,)))]
    check_options([choice.engine for choice in choices], base)
    variants = [
        _with(base, kv_cache_dtype=dtype, tokens=tokens, requests=requests)
        for dtype, tokens, requests in product(dtypes, lengths, counts)
    ]
    if media:
        if len(models) > 1:
            raise KvplanError("bad-usage", "images, video and audio are counted for one model at a time")
        from kvplan.architectures.media.request import with_media

        variants = [with_media(models[0], settings, media) for settings in variants]
    if any(choice.door for choice in choices) or len(models) == len(choices) == len(variants) == 1:
        choices, variants = _through(models, choices, variants)
    return Question(
        names,
        models,
        choices,
        variants,
        tuple(tokens for tokens in lengths if tokens is not None),
        tuple(number for number in counts if number is not None),
        every or compare_dtypes,
    )


def _through(
    models: list[Model], choices: list[Choice], variants: list[Settings]
) -> tuple[list[Choice], list[Settings]]:
    """The question as the engine behind a program is asked it."""
    if len(models) > 1 or len(choices) > 1:
        named = " ".join(choice.door or choice.engine.name for choice in choices)
        raise KvplanError("bad-usage", f"--engine {named}: one model and one program at a time")
    asked = [through(models[0], choices[0], settings) for settings in variants]
    notes = tuple(dict.fromkeys(note for choice, _ in asked for note in choice.notes))
    return [replace(choices[0], notes=notes)], [settings for _, settings in asked]


def _of_plan(names: list[str], given: Given) -> Question:
    """The question that a plan file asks, at other lengths and numbers where they are given."""
    if len(names) > 1:
        raise KvplanError("bad-usage", "one plan is sized at a time", help="kvplan check " + " ".join(names))
    typed = only(given, OF_A_QUESTION, names[0])
    plan = plan_of(names[0], given, needs_gpu=False)
    model, choice, base = planned(plan)
    lengths, counts = typed.pop("tokens", [None]), typed.pop("requests", [None])
    base = _with(base, **typed)
    variants = [_with(base, tokens=tokens, requests=number) for tokens, number in product(lengths, counts)]
    if len(variants) == 1:
        choice, variants[0] = through(model, choice, variants[0])
    return Question(
        names,
        [model],
        [choice],
        variants,
        tuple(tokens for tokens in lengths if tokens is not None),
        tuple(number for number in counts if number is not None),
        forgiving=False,
        plan=plan,
    )


def _with(base: Settings, **changes: Any) -> Settings:
    return replace(base, **{name: value for name, value in changes.items() if value is not None})


def check_color(given: Given) -> None:
    """Raises KvplanError(bad-usage) for a word that --color does not take."""
    color = text_of(given, "color")
    if color is not None and color not in COLOR_WORDS:
        raise KvplanError("bad-usage", f"--color {color}: not one of {', '.join(COLOR_WORDS)}")


def rules_file(choice: Choice) -> str:
    """``kvplan/engines/generic.py`` or ``kvplan/engines/vllm/``: where the engine's rules stand."""
    module = type(choice.engine).__module__
    where = module.removesuffix(".engine")
    return where.replace(".", "/") + (".py" if where == module else "/")
