"""The subject of a proof: a plan (or a bare model) with its settings resolved, its budget and its pool."""

from __future__ import annotations

from kvplan.deployment.counts import ask, largest_tokens
from kvplan.engines.base import Choice
from kvplan.engines.spill import spill
from kvplan.engines.tensors import Layout, Rank, layout_of
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import SAFE, Plan
from kvplan.plans.question import requests_of, settings_of
from kvplan.plans.receipt import model_digest, plan_hash
from kvplan.record import Json, record, replace
from kvplan.results import Budget, ModelWeights, SizeResult
from kvplan.settings import LONGEST, Settings
from kvplan.units import MIB, human_bytes

REHEARSAL_POOL = 256 * MIB
UNSTATED = 4096
"""Tokens of a request of a model that states no longest length, as state-space models do."""
_SHOWN = ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size")


@record()
class Target:
    """One thing to prove."""

    plan: Plan
    model: Model
    choice: Choice
    settings: Settings
    """with pool memory, length and number of requests as they will be run"""
    result: SizeResult
    budget: Budget | None
    """budget, weights: of the answer that divides the GPU's memory itself, as ``size`` and ``check`` give
    it; None where no GPU is named or nothing is known of the weights"""
    hash: str
    digest: str
    asks_proof: bool
    """a plan that names a GPU is proved on a GPU only"""
    weights: ModelWeights | None = None
    spec: Gpu | None = None
    """the GPU as its spec file has it"""
    wanted: int | None = None
    """requests that must fit, None = as many as fit"""
    notes: tuple[str, ...] = ()

    @property
    def pool_bytes(self) -> int:
        """Memory for the cache on one GPU, as asked for."""
        return self.settings.kv_cache_memory or self.result.per_gpu.peak_bytes

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The GPUs of one replica in the order of torch.distributed: stages outside, tensor ranks inside;
        decode-context ranks are neighbours among the tensor ranks."""
        settings = self.settings
        contexts = settings.decode_context_parallel_size
        return tuple(
            Rank(stage=stage, tensor=tensor, context=tensor % contexts)
            for stage in range(settings.pipeline_parallel_size)
            for tensor in range(settings.tensor_parallel_size)
        )

    def at_once(self, held: int) -> int:
        """How many requests the engine runs at once where its blocks hold so many."""
        pool = self.result.pool
        return held if pool is None else min(held, pool.max_running)

    def layout(self, rank: Rank) -> Layout:
        """The rank's allocation. Raises KvplanError(engine-refuses | unsupported-setting …)."""
        return layout_of(self.model, self.choice.engine.name, self.choice.version, self.settings, rank)

    def with_pool(self, pool: int) -> Target:
        """The same with another pool of the same length of request."""
        settings = replace(self.settings, kv_cache_memory=pool)
        return replace(self, settings=settings, result=ask(self.model, self.choice, settings))

    def shown_settings(self) -> dict[str, object]:
        """The settings of the receipt: the engine's resolved ones, the pool and the requests."""
        kept = {
            name: value
            for name, value in self.result.settings.items()
            if isinstance(value, (str, int, float, bool)) or value is None
        }
        return {
            **kept,
            "kv_cache_memory": self.pool_bytes,
            "tokens": self.result.request.tokens,
            "encoder_tokens": self.result.request.encoder_tokens,
        }


def bare_plan(model: Model, choice: Choice, settings: Settings) -> Plan:
    """A model on the command line as a plan of one replica."""
    gpus = settings.tensor_parallel_size * settings.pipeline_parallel_size
    return Plan(
        name=model.id,
        model=model.id,
        engine=f"{choice.engine.name}@{choice.version}",
        gpus=gpus,
        settings=settings,
    )


def target_of(
    plan: Plan,
    model: Model,
    choice: Choice,
    *,
    asks_proof: bool,
    on_gpu: bool,
    gpu: Gpu | None = None,
    spec: Gpu | None = None,
    changes: Json | None = None,
) -> Target:
    """Resolve a plan for the place where it will run.

    gpu: the spec of the device that was found, where the plan names none; spec: the same as its file has it,
    where a measured total has taken the file's place. changes: settings given on the
    command line (``kv_cache_memory``, ``tokens``, ``max_model_len``, ``requests``). Pool: as given, else
    what the budget leaves on a GPU, else (a rehearsal) 256 MiB. Length: as given, else the plan's, else the
    longest that fits; in a rehearsal no longer than fits its pool.

    Raises KvplanError(no-memory, engine-refuses …).
    """
    notes: list[str] = []
    given = dict(changes or {})
    wanted = given.pop("requests", None)
    base = replace(settings_of(plan), **given)
    if on_gpu and given:  # another plan than the file's: its receipt says so
        plan = replace(plan, settings=replace(plan.settings, **given))
    if base.gpu is None and gpu is not None:
        base = replace(base, gpu=gpu)
    base, spilled = spill(model, choice, base)
    notes += spilled
    answer = _answer(model, choice, base)
    budget = None if answer is None else answer.budget
    if wanted is None and asks_proof and on_gpu:
        wanted = requests_of(plan) or None
    pool, told = _pool(plan, model, budget, given, on_gpu=on_gpu)
    notes += told
    length = base.tokens
    if length is None and base.max_model_len != LONGEST:
        length = base.max_model_len
    settings = replace(base, kv_cache_memory=pool, requests=wanted or 1)
    settings, result, shorter = _resolved(model, choice, settings, length, rigid=on_gpu or "tokens" in given)
    if shorter is not None:
        notes.append(shorter)
    return Target(
        plan,
        model,
        choice,
        settings,
        result,
        budget,
        plan_hash(plan, model_digest(model, result.layers)),
        model_digest(model, result.layers),
        asks_proof,
        None if answer is None else answer.weights,
        plan.settings.gpu or spec,
        wanted,
        tuple(notes),
    )


def _pool(
    plan: Plan, model: Model, budget: Budget | None, given: Json, *, on_gpu: bool
) -> tuple[int, list[str]]:
    """(Bytes of the pool, what is to be said of them). Raises KvplanError(no-memory)."""
    stated: int | None = given.get("kv_cache_memory")
    if not on_gpu and stated is None:
        size = human_bytes(REHEARSAL_POOL)
        return REHEARSAL_POOL, [f"rehearsal with a pool of {size} (--kv-cache-memory changes it)"]
    pool = stated or plan.settings.kv_cache_memory or (_left(budget, plan) if on_gpu else 0)
    if on_gpu and not pool:
        raise KvplanError(
            "no-memory",
            f"how much memory the cache of {model.id} may take is not known",
            help=("--kv-cache-memory 60GiB", "give the weights of one GPU: --weights 15GiB"),
        )
    return pool or 0, []


def _answer(model: Model, choice: Choice, settings: Settings) -> SizeResult | None:
    """The engine's own division of the GPU's memory."""
    if settings.gpu is None:
        return None
    # The length of a request divides no memory; a model that states none is asked of what was said.
    tokens = settings.tokens if model.max_model_len is None else None
    asked = replace(settings, kv_cache_memory=None, tokens=tokens, requests=1)
    if asked.max_model_len == LONGEST:
        asked = replace(asked, max_model_len=None)
    return ask(model, choice, asked)


def _left(budget: Budget | None, plan: Plan) -> int | None:
    """The pool that the budget leaves: the safe figure where the plan stands on it."""
    if budget is None:
        return None
    return budget.kv_pool_low_bytes if plan.require.pool == SAFE else budget.kv_pool_bytes


def _resolved(
    model: Model, choice: Choice, settings: Settings, length: int | None, *, rigid: bool
) -> tuple[Settings, SizeResult, str | None]:
    """Settings with the lengths that will run: of the engine's start and of a request.

    rigid: what was asked for and does not fit is a refusal; else the longest that fits takes its place.
    """
    unstated = length is None and settings.max_model_len is None and model.max_model_len is None
    if unstated:
        length = UNSTATED
    if length is not None or settings.max_model_len is not None:
        asked = replace(settings, tokens=length)
        result = ask(model, choice, asked)
        if rigid:
            _check_taken(result)
        if result.refusal is None and (rigid or result.pool is None or result.pool.max_requests >= 1):
            said = _said(model, UNSTATED) if unstated else None
            return replace(asked, max_model_len=_started(result, asked)), result, said
    fits = _longest(
        model, choice, replace(settings, tokens=None, max_model_len=UNSTATED if unstated else None)
    )
    if length is not None:
        fits = min(fits, length)
    chosen = replace(settings, tokens=fits, max_model_len=fits)
    result = ask(model, choice, chosen)
    _check_taken(result)
    if unstated:
        return chosen, result, _said(model, fits)
    longer = max(
        (one for one in (length, settings.max_model_len) if one is not None), default=model.max_model_len or 0
    )
    shorter = None if longer <= fits else f"requests of {fits:,} tokens: {longer:,} do not fit the pool"
    return chosen, result, shorter


def _check_taken(result: SizeResult) -> None:
    """Raises KvplanError(engine-refuses) with the engine's own words."""
    if result.refusal is not None:
        raise KvplanError("engine-refuses", result.refusal.message, help=result.refusal.help)


def _said(model: Model, tokens: int) -> str:
    return f"{model.id} states no longest length: requests of {tokens:,} tokens (--tokens changes it)"


def _started(result: SizeResult, settings: Settings) -> int | None:
    """The length that the engine starts for, where it was left to the engine."""
    if settings.max_model_len != LONGEST:
        return settings.max_model_len
    found = result.settings.get("max_model_len")
    return found if isinstance(found, int) else None


def _longest(model: Model, choice: Choice, settings: Settings) -> int:
    """The longest request that the pool holds: the engine's own word where it refuses the model's length."""
    result = ask(model, choice, settings)
    fits = (
        largest_tokens(model, choice, settings)
        if result.refusal is None
        else result.refusal.largest_max_model_len
    )
    if fits is None and result.refusal is not None and result.refusal.code != "not-enough-memory":
        _check_taken(result)
    if not fits:
        raise KvplanError(
            "no-memory",
            f"a pool of {human_bytes(settings.kv_cache_memory or 0)} does not hold one token of {model.id}",
            help="give more: --kv-cache-memory 1GiB",
        )
    return fits


def check_world(target: Target, world: int) -> None:
    """Raises CannotRunHere(wrong-ranks) where there are other than the replica's ranks."""
    ranks = len(target.ranks)
    if world == ranks:
        return
    how = ", ".join(
        f"{name} {getattr(target.settings, name)}" for name in _SHOWN if getattr(target.settings, name) > 1
    )
    raise CannotRunHere(
        "wrong-ranks",
        f"one replica takes {ranks} rank{'s' if ranks > 1 else ''}{f' ({how})' if how else ''},"
        f" and {world} {'run' if world > 1 else 'runs'}",
        help=f"torchrun --nproc-per-node {ranks} -m kvplan.proof PLAN",
    )
