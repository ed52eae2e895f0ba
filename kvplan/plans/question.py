"""A plan's question to one of its pools: the settings of its engine and the request that it is sized for.

`kvplan size PLAN`, `explain PLAN`, `check`, `validate` and the library ask this, so that one deployment has
one count. Pure.
"""

from __future__ import annotations

from kvplan.deployment.question import Question
from kvplan.engines import OPTIONS_OF
from kvplan.engines.base import SAFE, Choice
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.record import replace
from kvplan.settings import Settings, with_setting
from kvplan.units import ceil_div

HOST_MEMORY = "host_memory"


def pools_of(plan: Plan) -> int:
    """Pools with requests of their own, over the whole plan; 0 where the GPUs make up no engine. Engines that
    only read prompts (``fleet.prefill_replicas``) hold none to its end."""
    return max(plan.replicas - plan.fleet.prefill_replicas, 0) * plan.pools_per_replica


def tokens_of(plan: Plan) -> int | None:
    """The length that requests are counted in: required, else the workload's longest; None = as served."""
    if plan.require.tokens is not None:
        return plan.require.tokens
    return None if plan.workload is None else plan.workload.longest


def requests_of(plan: Plan) -> int:
    """Requests of the fullest pool: what is required or in flight, dealt evenly; 0 = not said."""
    return ceil_div(max(plan.require.requests or 0, _flying(plan)), max(pools_of(plan), 1))


def generated_of(plan: Plan, tokens: int | None) -> int | None:
    """Of a request of this length the tokens generated, as the workload says; None: it says nothing."""
    shapes = plan.workload.shapes if plan.workload is not None else ()
    return next((max(1, shape.output_tokens) for shape in shapes if shape.tokens == tokens), None)


def settings_of(plan: Plan) -> Settings:
    """The plan's settings with its question: so many requests of such a length on one pool."""
    tokens = tokens_of(plan)
    settings = replace(
        plan.settings,
        tokens=plan.settings.tokens if tokens is None else tokens,
        answer_tokens=plan.settings.answer_tokens or generated_of(plan, tokens),
        requests=requests_of(plan) or plan.settings.requests,
    )
    host = plan.require.host_memory_bytes
    if host and caches_in_host(plan):
        return with_setting(settings, HOST_MEMORY, host // max(plan.replicas, 1))
    return settings


def without_host(settings: Settings) -> Settings:
    """The settings of a plan, whose host memory is a requirement and no flag."""
    return replace(settings, own=settings.own.without(HOST_MEMORY))


def question_of(plan: Plan, model: Model, choice: Choice) -> Question:
    """The question that a plan asks: its servers as they are written, and the load that it requires of all of
    them. Engines that only read prompts are left out."""
    if plan.require.pool == SAFE:
        choice = replace(choice, pool=SAFE)
    settings = settings_of(plan)
    prompts = plan.fleet.prefill_replicas * plan.gpus_per_replica
    gpus = max(plan.gpus - prompts, 0)
    load = max(plan.require.requests or 0, _flying(plan)) or plan.settings.requests
    return Question(model, choice, replace(settings, requests=load, gpus=gpus or None), written=True)


def _flying(plan: Plan) -> int:
    """Requests in flight, as the workload says; 0 where it does not."""
    return 0 if plan.workload is None else plan.workload.requests_in_flight or 0


def start_of(plan: Plan) -> Settings:
    """The settings with which the engine starts: without the question, but for an engine whose context is as
    long as its requests together (llama.cpp)."""
    if traits_of(plan.engine.partition("@")[0]).spread is not None:
        return settings_of(plan)
    return replace(plan.settings, tokens=None, requests=1)


def caches_in_host(plan: Plan) -> bool:
    """Whether the engine may keep the cache itself in host memory, rather than a tier behind it."""
    engine = plan.engine.partition("@")[0]
    return any(option.name == HOST_MEMORY for option in OPTIONS_OF.get(engine, ()))
