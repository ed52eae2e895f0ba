"""``kvplan size MODEL -n 50 -t 8k --least``: what so many requests need at least."""

from __future__ import annotations

from fractions import Fraction

from kvplan.api.least import Least, least
from kvplan.cli.answer import Answer
from kvplan.cli.ask import Question
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.results import SCHEMA_VERSION


def run(asked: Question, *, json: bool) -> Answer:
    """Exit code 1: there is less memory than they need. Raises KvplanError(bad-usage)."""
    if len(asked.models) * len(asked.choices) * len(asked.variants) > 1:
        raise KvplanError("bad-usage", "--least takes one model, one engine, one length and number")
    model, choice, settings = asked.models[0], asked.choices[0], asked.variants[0]
    found = least(model, choice, settings)
    enough = found.memory is not None and (found.room is None or found.memory <= found.room)
    code = EXIT_OK if enough else EXIT_NO
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, **_data(found)}, code=code)
    from kvplan.report.least import least_screen

    return Answer(least_screen(found, model, choice, settings), code=code)


def _data(found: Least) -> dict[str, object]:
    data: dict[str, object] = found._asdict()
    for name in ("share", "gpus"):
        both = getattr(found, name)
        data[name] = None if both is None else {key: _number(one) for key, one in both._asdict().items()}
    return data


def _number(one: Fraction | int | None) -> float | int | None:
    return float(one) if isinstance(one, Fraction) else one
