"""Requests at once by GPU, ways of dividing and length: one line a machine."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment.answer import Answer
from kvplan.deployment.lengths import Rung, by_length, rung_of
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import resolve
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.named import NamedTuple
from kvplan.results import NO_POOL
from kvplan.settings import stated_length


class Machine(NamedTuple):
    """One line. answers: one for each length that the model takes; cells: one for each length, None where the
    model takes no request that long. alone: whether each length has a server that is started for it, since
    none starts for the longest. why: why there is no line."""

    gpu: Gpu
    gpus: int
    tensor_parallel_size: int
    replicas: int = 1
    answers: tuple[Answer, ...] = ()
    cells: tuple[Rung | None, ...] = ()
    alone: bool = False
    why: str | None = None

    @property
    def weights(self) -> int | None:
        """Bytes of weights on the fullest GPU."""
        weights = self.answers[0].result.weights if self.answers else None
        return None if weights is None else weights.bytes_per_gpu

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for one in self.answers for text in one.result.warnings))

    @property
    def chosen_length(self) -> int | None:
        """The length that all rows are served with, where neither the question nor the model says it."""
        return None if self.alone or not self.answers else self.answers[0].deployment.chosen_length


def machine(question: Question, lengths: Sequence[int]) -> Machine:
    """Requests of each length that one machine holds, by `by_length`."""
    gpu = question.settings.gpu
    assert gpu is not None
    starts = traits_of(question.choice.engine.name).starts_for_length
    own = stated_length(question.settings) or question.model.max_model_len if starts else None
    taken = [length for length in lengths if own is None or length <= own]
    deployment = resolve(question)
    line = Machine(gpu, deployment.gpus, question.settings.tensor_parallel_size, deployment.replicas)
    if not taken:
        return line._replace(why=f"{question.model.id} takes no request that long")
    try:
        answers, alone = by_length(question, taken)
    except KvplanError as error:
        return line._replace(why=error.message)
    first = answers[0]
    if first.likely is None:
        refused = None if first.result.refusal is None else first.result.refusal.message
        return line._replace(why=refused or next(iter(first.result.warnings), NO_POOL))
    cells = dict(zip(taken, map(rung_of, answers)))
    return line._replace(
        answers=tuple(answers), cells=tuple(cells.get(length) for length in lengths), alone=alone
    )
