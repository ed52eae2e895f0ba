"""Plans that run on one GPU, as far as the text says that they were read from."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.checking.start import Started
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.plan import Plan
from kvplan.plans.serve import flag_for
from kvplan.units import gib


def crowded(plan: Plan, model: Model, before: Sequence[tuple[Plan, Model]]) -> Finding | None:
    """The finding about a plan that starts on a GPU after others, where there is one.

    vLLM refuses to start where less than its share of the whole GPU is free (vllm 0.33
    vllm/v1/worker/utils.py, request_memory); SGLang's and TensorRT-LLM's shares are of what is free."""
    others = [one for one in before if not {*one[0].devices}.isdisjoint(plan.devices)]
    if not others:
        return None
    names = ", ".join(other.name for other, _ in others)
    share = traits_of(plan.engine.partition("@")[0]).memory_share
    field = f"serve.{flag_for(plan.engine, 'gpu_memory_utilization') or 'gpu'}"
    taken = [_taken(*one) for one in [*others, (plan, model)]]
    sizes = [one for one in taken if one is not None]
    sleeping = [other.name for other, _ in others if dict(other.serve).get("enable_sleep_mode") is True]
    text = f"it shares one GPU with {names}"
    if share is not None and share.of_free:
        said = f"{text}: {share.flag} is of what they leave free, and these figures are those of a whole GPU"
        return Finding("shared-gpu", Severity.WARNING, said, field)
    if len(sizes) < len(taken):
        said = f"{text}, and what one of them takes is not known: whether they fit together neither"
        return Finding("shared-gpu", Severity.WARNING, said, field)
    total = max(whole for _, whole in sizes)
    used = sum(one for one, _ in sizes)
    if used <= total:
        return Finding("shared-gpu", Severity.NOTE, f"{text}, and there is room for both", field)
    if sleeping:
        asleep = " and ".join(sleeping)
        said = (
            f"{text}: it starts only while {asleep} sleeps (--enable-sleep-mode), and wakes no more meanwhile"
        )
        return Finding("shared-gpu", Severity.WARNING, said, field)
    detail = " + ".join(gib(one) for one, _ in sizes)
    said = f"{text}: together they take {gib(used)} of {gib(total)}, and the last would not start"
    return Finding("shared-gpu", Severity.ERROR, said, field, (detail,))


def _taken(plan: Plan, model: Model) -> tuple[int, int] | None:
    """(bytes of a GPU that an engine takes, that the GPU has)."""
    try:
        result = Started(plan, model).result
    except KvplanError:
        return None
    budget = None if result is None else result.budget
    return None if budget is None else (budget.total_bytes - budget.unused_bytes, budget.total_bytes)
