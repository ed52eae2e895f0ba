"""``kvplan size MODEL --gpu 4xh100,8xh100 --tp 4,8 -t 8k,32k``: one line a machine."""

from __future__ import annotations

import shlex
from itertools import product
from typing import Any

from kvplan.cli.ask import typed as typed_of
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import OPTIONS
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import typed_words
from kvplan.deployment.machines import Machine, machine
from kvplan.engines.base import Choice
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.model import Model
from kvplan.results import SCHEMA_VERSION

_LISTED = ("gpu", "tensor_parallel_size")
_LENGTHS = (4096, 32768, 131072)


def machines(given: Given) -> list[dict[str, Any]]:
    """The options of each machine of the comma lists ``--gpu`` and ``--tp``."""
    pieces = []
    for name in _LISTED:
        text = text_of(given, name)
        pieces.append([None] if text is None else [piece.strip() for piece in text.split(",")])
    return [{**given, **dict(zip(_LISTED, chosen))} for chosen in product(*pieces)]


def run(words: list[str], given: Given) -> Answer:
    """Requests at once by machine and length. Raises KvplanError(bad-usage) for what makes no one table."""
    lines: list[Machine] = []
    typed: list[dict[str, Any]] = []
    wrong: list[KvplanError] = []
    lead: list[Choice] = []
    for options in machines(given):
        try:
            asked = typed_of(words, options)
            if lead and asked.choices[0].engine.name != lead[0].engine.name:  # one for the whole table
                options = {**options, "engine": lead[0].engine.name}
                asked = typed_of(words, options)
            lead = lead or asked.choices
        except KvplanError as error:
            if error.code != "bad-setting":
                raise
            wrong.append(error)  # eight ranks on four GPUs: of a list only that pair
            continue
        settings = asked.variants[0]
        several = len(asked.models) * len(asked.choices) > 1 or len(asked.counts) > 1
        if several or asked.plan is not None or text_of(given, "show") is not None or settings.gpu is None:
            raise KvplanError(
                "bad-usage", "a table of GPUs takes one model, one engine, one number of requests and --gpu"
            )
        model, choice = asked.models[0], asked.choices[0]
        lengths = asked.lengths or _usual(model)
        wanted = settings.requests
        line = machine(asked.first, lengths)
        if line not in lines:
            lines.append(line)
            typed.append(options)
    if not lines:
        raise wrong[0]
    code = _code(lines, wanted)
    if is_given(given, "json"):
        engine = {"name": choice.engine.name, "version": choice.version}
        return Answer(data=_data(model, engine, lines), code=code)
    from kvplan.report.capacity import capacity_screen
    from kvplan.report.notes import none_holds

    no = none_holds({wanted}) if code == EXIT_NO else []
    step = _step(words, lines, typed, wanted)
    return Answer([*no, *capacity_screen(model, choice, lines, lengths, wanted, step=step)], code=code)


def _step(words: list[str], lines: list[Machine], typed: list[dict[str, Any]], wanted: int) -> str:
    """The first machine that holds what was asked for by itself, as its line was counted: the length that it
    holds and what its server was started with, where they were not typed."""

    def held(one: Machine) -> list[int]:
        return [cell.tokens for cell in one.cells if cell is not None and cell.likely >= wanted]

    answered = [(one, options) for one, options in zip(lines, typed) if one.why is None]
    first = next((pair for pair in answered if held(pair[0])), next(iter(answered), None))
    if first is None:
        return ""
    line, options = first
    longest, told = max(held(line), default=None), line.chosen_length
    if line.alone:
        told = longest
    if longest is not None and (line.alone or longest != max(cell.tokens for cell in line.cells if cell)):
        options = {**options, "tokens": str(longest)}
    if told is not None:
        options = {**options, "max_model_len": str(told)}
    return shlex.join(["kvplan", "size", *words, *typed_words(options, OPTIONS)])


def _usual(model: Model) -> tuple[int, ...]:
    own = model.max_model_len
    found = tuple(length for length in _LENGTHS if own is None or length < own)
    return (*found, own) if own is not None and own <= _LENGTHS[-1] else found


def _code(lines: list[Machine], wanted: int) -> int:
    cells = [cell for line in lines for cell in line.cells if cell is not None]
    if not cells:
        return EXIT_CANNOT_ANSWER
    return EXIT_OK if any(cell.likely >= wanted for cell in cells) else EXIT_NO


def _data(model: Model, engine: dict[str, str], lines: list[Machine]) -> dict[str, object]:
    rows = [
        {
            "gpu": line.gpu.slug,
            "gpus": line.gpus,
            "replicas": line.replicas,
            "tensor_parallel_size": line.tensor_parallel_size,
            "weights_bytes": line.weights,
            "started_for_each_length": line.alone,
            "requests": [cell._asdict() for cell in line.cells if cell is not None],
            "why_not": line.why,
        }
        for line in lines
    ]
    return {"schema_version": SCHEMA_VERSION, "model": model.id, "engine": engine, "machines": rows}
