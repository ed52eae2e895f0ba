"""Other engines, where the ones that were asked for do not run on the GPUs at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.api.planning.inputs import ALL, choices_of
from kvplan.engines.base import Choice
from kvplan.errors import KvplanError
from kvplan.planning.ask import Ask
from kvplan.planning.results import PlanResult, SuggestedFix


def elsewhere(
    result: PlanResult, asked: Callable[[Choice], Ask], planned: Callable[[Sequence[Ask]], PlanResult]
) -> tuple[SuggestedFix, ...]:
    """Engines that serve the load there; none where the ones that were asked for run on one of the GPUs.

    asked: the question, put to an engine; raises KvplanError where that one has no word for it.
    """
    refused = {gpu for one in result.reasons if one.code == "engine-gpu" for gpu in one.gpus}
    if result.options or refused != {one.gpu for one in result.unserved}:
        return ()
    found = []
    for choice in choices_of(ALL):
        try:
            answer = planned([asked(choice)])
        except KvplanError:  # an option of the other engine
            continue
        if answer.options:
            best = answer.options[0]
            name = choice.engine.name
            then = f"{best.gpus} × {best.gpu} ({best.layout()})"
            found.append(SuggestedFix(f"engine {name}", f"--engine {name}", then, best.gpus))
    return tuple(found)
