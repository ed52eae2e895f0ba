"""``kvplan explain``."""

from __future__ import annotations

import shlex

from kvplan.api.suggestions import with_suggestions
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color, rules_file, typed
from kvplan.cli.commands import Given, is_given
from kvplan.cli.options import OPTIONS
from kvplan.cli.typed import typed_words
from kvplan.deployment.answer import answered
from kvplan.deployment.counts import PLENTY, as_started, ask
from kvplan.deployment.resolve import resolve
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.record import replace


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
    deployment = resolve(asked.first)
    model, choice = deployment.model, replace(deployment.choice, pool=None)
    settings = as_started(model, deployment.choice, deployment.settings)
    deployment = replace(deployment, choice=choice, settings=settings)
    result = with_suggestions(answered(deployment)).result
    code = EXIT_OK if result.ok else EXIT_NO
    if is_given(given, "json"):
        from kvplan.report.explain_json import explain_dump

        return Answer(data=explain_dump(model, result), code=code)
    roomy = ask(model, choice, replace(settings, kv_cache_memory=PLENTY))
    from kvplan.plans.serve import left_out
    from kvplan.report.explain import explain_screen, whole_screen

    result = replace(result, warnings=(*left_out(asked.plan), *result.warnings))
    if is_given(given, "verbose"):
        return Answer(whole_screen(model, result, roomy.pool, rules_file=rules_file(choice)), code=code)
    return Answer(explain_screen(model, result, roomy.pool), code=code)
