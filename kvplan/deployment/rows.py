"""Answers side by side: models, engines, formats and lengths, a row each."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.lengths import starts_for_all
from kvplan.deployment.question import Question
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.results import SizeResult


class Row(NamedTuple):
    """One row of a comparison: an answer, or why there is none."""

    question: Question
    found: Answer | None
    error: KvplanError | None = None

    @property
    def result(self) -> SizeResult | None:
        return None if self.found is None else self.found.result

    @property
    def max_requests(self) -> int | None:
        """Requests at once over all replicas, in the pool that has to hold them; None where nothing was
        counted."""
        found = self.found
        if found is None or found.likely is None or found.safe is None:
            return None
        return (found.safe if found.in_safe_pool else found.likely).each * found.deployment.pools


def side_by_side(questions: Iterable[Question], *, keep_errors: bool) -> list[Row]:
    """The answers in that order.

    keep_errors: an engine that does not take a question becomes a row that says so, unless all rows are
    errors; else the first error is raised. Raises KvplanError.
    """
    rows = [row_of(question) for question in with_servers(questions)]
    errors = [row.error for row in rows if row.error is not None]
    if errors and (not keep_errors or len(errors) == len(rows)):
        raise errors[0]
    return rows


def with_servers(questions: Iterable[Question]) -> list[Question]:
    """The questions; those of several lengths share a server that is started for the longest, where it
    starts."""
    found: list[Question] = []
    shared: dict[Question, bool] = {}
    for question in questions:
        if len(question.lengths) > 1:
            at_longest = replace(question, settings=replace(question.settings, requests=1, tokens=None))
            if at_longest not in shared:
                shared[at_longest] = starts_for_all(question)
            if not shared[at_longest]:
                question = replace(question, lengths=())
        found.append(question)
    return found


def row_of(question: Question) -> Row:
    """One row."""
    try:
        return Row(question, answer(question))
    except KvplanError as error:
        return Row(question, None, error)
