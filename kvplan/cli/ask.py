"""From parsed options to questions: which models, which engines, which settings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from kvplan.api import OF_A_QUESTION, load_model, make_settings, planned
from kvplan.api.load import usual_engine
from kvplan.cli.commands import Given, text_of
from kvplan.cli.given import gather
from kvplan.cli.plan_word import is_plan_file, only, plan_of
from kvplan.cli.terminal import COLOR_WORDS
from kvplan.deployment.counts import kv_dtypes_to_compare
from kvplan.deployment.question import Question
from kvplan.engines import ENGINES, check_options
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.engines.doors import head_of
from kvplan.errors import KvplanError
from kvplan.files.cards.ollama_names import named_in
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.settings import MEDIA, Settings

if TYPE_CHECKING:
    from kvplan.plans.plan import Plan

ALL = "all"


class Typed(NamedTuple):
    """Everything that one command line asks. names: as typed; lengths, counts: as given, for ladders.
    forgiving: engines or dtypes were not named one by one, so one that does not apply is only a row. plan:
    where a plan file asks."""

    names: list[str]
    models: list[Model]
    choices: list[Choice]
    variants: list[Settings]
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    forgiving: bool
    plan: Plan | None = None

    def __len__(self) -> int:
        """Questions on the line."""
        return len(self.models) * len(self.choices) * len(self.variants)

    def question(self, model: Model, choice: Choice, settings: Settings) -> Question:
        """One of the questions."""
        return Question(model, choice, settings, self.lengths, written=self.plan is not None)

    @property
    def first(self) -> Question:
        return self.question(self.models[0], self.choices[0], self.variants[0])

    def questions(self) -> Iterator[Question]:
        """Every model under every engine with every variant of the settings, in that order."""
        for model, choice, settings in product(self.models, self.choices, self.variants):
            yield self.question(model, choice, settings)


def typed(names: list[str], given: Given, *, compare_dtypes: bool = False) -> Typed:
    """Load the models, choose the engines, and make one Settings for each combination of the lists."""
    if names.count("-") > 1:
        raise KvplanError("bad-usage", "standard input can be one model only")
    if any(is_plan_file(name) for name in names):
        return _of_plan(names, given)
    values = gather(given)
    specs = values.pop("engine", None)
    every = specs is not None and ALL in specs
    named = [] if specs is None else [choose(spec) for spec in (list(ENGINES) if every else specs)]
    lengths = values.pop("tokens", [None])
    if 0 in lengths:
        raise KvplanError("bad-setting", "a request has at least one token", help="--tokens 4096")
    counts = values.pop("requests", [None])
    dtypes = values.pop("kv_cache_dtype", [None])
    weights_from = values.pop("weights_from", None)
    models = _models(names, named, weights_from)
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
        variants = _carrying(models, variants, media)
        lengths = [settings.tokens for settings in variants]
    return Typed(names, models, choices, variants, _stated(lengths), _stated(counts), every or compare_dtypes)


def _models(names: list[str], choices: list[Choice], weights_from: str | None) -> list[Model]:
    """The models, by the names that the first engine has for them."""
    head = head_of(choices[0] if choices else None)
    return [load_model(named_in(head, name), weights_from=weights_from) for name in names]


def _carrying(models: list[Model], variants: list[Settings], media: dict[str, object]) -> list[Settings]:
    """The settings with what a request carries beside its text."""
    if len(models) > 1:
        raise KvplanError("bad-usage", "images, video and audio are counted for one model at a time")
    from kvplan.architectures.media.request import with_media

    return [with_media(models[0], settings, media) for settings in variants]


def _stated(numbers: list[int | None]) -> tuple[int, ...]:
    return tuple(number for number in numbers if number is not None)


def _of_plan(names: list[str], given: Given) -> Typed:
    """The question that a plan file asks, at other lengths and numbers where they are given."""
    if len(names) > 1:
        raise KvplanError("bad-usage", "one plan is sized at a time", help="kvplan check " + " ".join(names))
    values = only(given, OF_A_QUESTION, names[0])
    plan = plan_of(names[0], given, needs_gpu=False)
    question = planned(plan)
    lengths, counts = values.pop("tokens", [None]), values.pop("requests", [None])
    base = _with(question.settings, **values)
    variants = [_with(base, tokens=tokens, requests=number) for tokens, number in product(lengths, counts)]
    return Typed(
        names,
        [question.model],
        [question.choice],
        variants,
        _stated(lengths),
        _stated(counts),
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
