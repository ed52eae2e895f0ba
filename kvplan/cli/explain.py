"""``kvplan explain``."""

from __future__ import annotations

import shlex

from kvplan.api.explaining import explained
from kvplan.cli.ask import check_color, rules_file, typed
from kvplan.cli.commands import Given, is_given
from kvplan.cli.options import OPTIONS
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import typed_words
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError


def run(words: list[str], given: Given) -> Answer:
    """The terms of one answer."""
    check_color(given)
    asked = typed(words, given)
    if len(asked.choices) * len(asked.variants) > 1:
        raise KvplanError(
            "bad-usage",
            "explain answers one question: one engine, length, number and dtype",
            help=shlex.join(["kvplan", "size", *words, *typed_words(given, OPTIONS)]),
        )
    from kvplan.plans.serve import left_out

    found = explained(asked.first, *left_out(asked.plan))
    code = EXIT_OK if found.ok else EXIT_NO
    if is_given(given, "json"):
        return Answer(data=found.model_dump(), code=code)
    from kvplan.report.explain import answer_screen, whole_screen

    if is_given(given, "verbose"):
        return Answer(whole_screen(found, rules_file=rules_file(asked.first.choice)), code=code)
    return Answer(answer_screen(found), code=code)
