"""``compare`` with a program's list of the models that it loaded (`kvplan.files.logs.listed`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from kvplan.api.load import load_model
from kvplan.comparison import Comparison
from kvplan.comparison.loaded import compare_loaded
from kvplan.engines.doors import door_of
from kvplan.engines.observed import Observation, Row, placed
from kvplan.errors import KvplanError
from kvplan.files.launch.programs import model_of_program
from kvplan.files.logs.listed import PROGRAM
from kvplan.model import Model
from kvplan.results import SizeResult


def is_list(observation: Observation) -> bool:
    """Whether an observation is a program's list and no engine's log."""
    return observation.setting(PROGRAM) is not None


def compare_listed(
    model: Model | None,
    observation: Observation,
    options: Mapping[str, Any],
    tolerance: Fraction,
    size: Callable[..., SizeResult],
) -> Comparison:
    """A model of the list, as the program starts it, beside what the list says of it.

    model: which, where it has several. options: keywords of `size`, which count before the list's.
    Raises KvplanError(no-model | no-gpu | unknown-model)."""
    program = str(observation.setting(PROGRAM))
    door, row = door_of(program), _row(model, observation, program)
    found_model = model or load_model(model_of_program(program, row.rank.label))
    asked = {name: value for name, value in options.items() if value is not None}
    if asked.get("gpu") is None:
        raise KvplanError(
            "no-gpu",
            f"the {observation.source} does not say which GPU it runs on",
            help="--gpu rtx-3060: its kind",
        )
    recognised = {"program": door.title}
    if row.loaded_context is not None and not {"tokens", "max_model_len", "ctx_size"} & asked.keys():
        asked["tokens"] = row.loaded_context.value
        where = placed(row.loaded_context, "list")
        recognised["context"] = f"{row.loaded_context.value} ({where})"
    found = size(found_model, engine=program, **asked)
    taken = None if found.budget is None or door.loaded is None else door.loaded(found_model, found)
    return compare_loaded(found, taken, observation, row, tolerance=tolerance, recognised=recognised)


def _row(model: Model | None, observation: Observation, program: str) -> Row:
    """The row of the model, or the only one. Raises KvplanError(no-model)."""
    names = [row.rank.label for row in observation.rows]
    if model is None:
        if len(names) == 1:
            return observation.rows[0]
        raise KvplanError(
            "no-model",
            f"the {observation.source} lists {len(names)} models: name one of them",
            help=[f"kvplan compare {name} FILE --gpu rtx-3060" for name in names[:3]],
        )
    for row in observation.rows:
        try:
            same = load_model(model_of_program(program, row.rank.label))
        except KvplanError:
            same = None
        if row.rank.label == model.id or (same is not None and same.runs == model.runs):
            return row
    raise KvplanError(
        "no-model",
        f"the {observation.source} does not list {model.id}",
        help=f"it lists {', '.join(names[:6])}",
    )
