"""``compare`` with a program's list of its models (`kvplan.files.logs.listed`)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from kvplan.api.load import load_model
from kvplan.comparison import Comparison
from kvplan.comparison.loaded import compare_loaded, compare_stored
from kvplan.engines import choose_engine
from kvplan.engines.doors import Door, door_of
from kvplan.engines.observed import Observation, Row, placed
from kvplan.errors import KvplanError
from kvplan.files.launch.programs import model_of_program
from kvplan.files.logs.listed import PROGRAM
from kvplan.files.logs.shown import NO_GGUF
from kvplan.model import Model
from kvplan.record import Json
from kvplan.results import EngineRef, ModelRef, SizeResult


def is_list(observation: Observation) -> bool:
    """Whether an observation is a program's list and no engine's log."""
    return observation.setting(PROGRAM) is not None


def compare_listed(
    model: Model | None,
    observation: Observation,
    options: Json,
    tolerance: Fraction,
    size: Callable[..., SizeResult],
) -> Comparison:
    """A model of the list, as the program starts it, beside what the list says of it.

    model: which, where it has several. options: keywords of `size`, which count before the list's.
    Raises KvplanError(no-model | no-gpu | unknown-model)."""
    program = str(observation.setting(PROGRAM))
    door, row = door_of(program), _row(model, observation, program)
    if row.build == NO_GGUF:
        raise KvplanError(
            "unsupported-model",
            f"{row.rank.label} is no GGUF file: {door.title} runs it on MLX, which is not compared",
            help="name one that is, where the list has several",
        )
    found_model = model or load_model(model_of_program(program, row.rank.label))
    if row.build is not None and door.in_build is not None:
        found_model = door.in_build(found_model, row.build)
    asked = {name: value for name, value in options.items() if value is not None}
    recognised = {"program": door.title}
    if row.build is not None:
        recognised["build"] = row.build
    if row.loaded_context is not None and not {"tokens", "max_model_len", "ctx_size"} & asked.keys():
        asked["tokens"] = row.loaded_context.value
        where = placed(row.loaded_context, "list")
        recognised["context"] = f"{row.loaded_context.value} ({where})"
    if row.loaded_slots is not None and not {"requests", "max_num_seqs", "parallel"} & asked.keys():
        asked["requests"] = row.loaded_slots.value
        recognised["requests at once"] = f"{row.loaded_slots.value} ({placed(row.loaded_slots, 'list')})"
    if row.loaded_bytes is None and door.stored is not None:
        return _stored(found_model, door, observation, row, asked, tolerance, recognised, size)
    if asked.get("gpu") is None:
        raise KvplanError(
            "no-gpu",
            f"the {observation.source} does not say which GPU it runs on",
            help="--gpu rtx-3060: its kind",
        )
    found = size(found_model, engine=program, **asked)
    taken = None if found.budget is None or door.loaded is None else door.loaded(found_model, found)
    return compare_loaded(found, taken, observation, row, tolerance=tolerance, recognised=recognised)


def _stored(
    model: Model,
    door: Door,
    observation: Observation,
    row: Row,
    asked: Json,
    tolerance: Fraction,
    recognised: dict[str, str],
    size: Callable[..., SizeResult],
) -> Comparison:
    """A model's file beside what is said of it; with a GPU, whether it starts there so, too."""
    assert door.stored is not None
    choice = choose_engine(door.name)
    notes: tuple[str, ...] = ()
    if asked.get("gpu") is not None:
        notes = _starts(size(model, engine=door.name, **asked), door)
    elif row.loaded_context is not None:
        notes = ("--gpu: whether it fits there with that context",)
    return compare_stored(
        ModelRef(model.id, model.source),
        EngineRef(choice.engine.name, choice.version),
        door.stored(model),
        observation,
        row,
        tolerance=tolerance,
        recognised=recognised,
        notes=notes,
    )


def _starts(found: SizeResult, door: Door) -> tuple[str, ...]:
    if found.refusal is not None:
        said = f"does not start on that GPU: {found.refusal.message}"
    else:
        hosted = found.settings.get("layers_on_host")
        where = f" with {hosted} layers in host memory" if hosted else ""
        said = f"starts on that GPU with {found.request.tokens:,} tokens{where}"
    return (f"as {door.title} loads it, it {said}", *found.warnings)


def _row(model: Model | None, observation: Observation, program: str) -> Row:
    """The row of the model, or the only one. Raises KvplanError(no-model)."""
    names = [row.rank.label for row in observation.rows]
    if len(names) == 1 and not names[0]:
        if model is None:
            raise KvplanError(
                "no-model",
                f"the {observation.source} does not say which model it is: name it",
                help="kvplan compare qwen3:8b FILE",
            )
        return observation.rows[0]
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
