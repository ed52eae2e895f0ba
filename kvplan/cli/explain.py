"""``kvplan explain``."""

from __future__ import annotations

import shlex

from kvplan.api.suggestions import with_suggestions
from kvplan.cli.ask import check_color, rules_file, typed
from kvplan.cli.commands import Given, is_given
from kvplan.cli.options import OPTIONS
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import typed_words
from kvplan.deployment.answer import answered
from kvplan.deployment.counts import PLENTY, as_started, ask
from kvplan.deployment.resolve import resolve
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.record import changed, replace
from kvplan.results import SizeResult


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
    bare = replace(deployment, choice=choice, settings=settings)
    result = _as_deployed(with_suggestions(answered(bare)).result, answered(deployment).result)
    code = EXIT_OK if result.ok else EXIT_NO
    from kvplan.plans.serve import left_out

    result = replace(result, warnings=(*left_out(asked.plan), *result.warnings))
    if is_given(given, "json"):
        from kvplan.report.explain_json import explain_dump

        return Answer(data=explain_dump(model, result), code=code)
    roomy = ask(model, choice, replace(settings, kv_cache_memory=PLENTY))
    from kvplan.report.explain import explain_screen, whole_screen

    if is_given(given, "verbose"):
        return Answer(whole_screen(model, result, roomy.pool, rules_file=rules_file(choice)), code=code)
    return Answer(explain_screen(model, result, roomy.pool), code=code)


def _as_deployed(bare: SizeResult, deployed: SizeResult) -> SizeResult:
    """The answer without a GPU's budget, which explains models that do not fit too, with the bytes that the
    cache takes as it is deployed: of layers in host memory, for example, none."""
    if not deployed.sized or (bare.per_gpu, bare.total) == (deployed.per_gpu, deployed.total):
        return bare
    return changed(bare, per_gpu=deployed.per_gpu, total=deployed.total, warnings=deployed.warnings)
