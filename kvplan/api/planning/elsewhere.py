"""Other engines, where the ones that were asked for do not run on the GPUs at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.api.planning.inputs import ALL, asks_of, choices_of
from kvplan.engines.base import Choice
from kvplan.planning.ask import Ask
from kvplan.planning.reasons import other_engines
from kvplan.planning.results import PlanResult, SuggestedFix


def elsewhere(
    result: PlanResult, asked: Callable[[Choice], Ask], choices: Sequence[Choice]
) -> tuple[SuggestedFix, ...]:
    """Engines that serve the load there; none where the choices that were asked for run on one of the GPUs.

    asked: the question, put to an engine; raises KvplanError where that one has no word for it.
    """
    refused = {gpu for one in result.reasons if one.code == "engine-gpu" for gpu in one.gpus}
    if result.options or refused != {one.gpu for one in result.unserved}:
        return ()
    asks, _ = asks_of(asked, [*choices, *choices_of(ALL)], forgiving=True)
    return other_engines(asks)
