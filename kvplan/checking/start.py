"""One plan, its model and its engine: whether it starts, and what a request takes of its pool.

Everything is the engine's own answer (`kvplan.deployment.counts.ask`): a share of a pool is what a request
takes of it by the engine's allocator, and a pool is what the budget of the named GPU leaves.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, lru_cache

from kvplan.deployment.counts import IN_HOST, as_started, ask, uncounted
from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.budget import BUDGETS, TOO_LARGE, choose, divides, in_safe_pool
from kvplan.engines.budget.sharing import Taken, runs_of, share_of, taken_of
from kvplan.engines.spill import spill
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.plan import SAFE, Plan
from kvplan.plans.question import caches_in_host, generated_of, pools_of, requests_of, start_of
from kvplan.plans.serve import host_tiers
from kvplan.record import replace
from kvplan.results import Budget, Refusal, SizeResult
from kvplan.settings import LONGEST, Settings, started_in

REFUSED = ("unsupported-dtype", "bad-setting", "cannot-shard", "engine-gpu", "no-draft", "unknown-dtype")
"""Codes with which the rules say that the engine would not take a setting. Others say that kvplan does not
know, which is no verdict on the plan."""
MOST = 10**9


@lru_cache(maxsize=64)
def chosen(spec: str) -> Choice:
    """The engine and version of a plan, remembered."""
    return choose(spec)


class Started:
    """A plan and the engine's start with it. Raises KvplanError where kvplan cannot answer."""

    def __init__(self, plan: Plan, model: Model) -> None:
        self.plan, self.model = plan, model
        self.choice = chosen(plan.engine)
        self.refusal: Refusal | None = None
        self.result: SizeResult | None = None
        self.memory: int | None = None
        self.safe_memory: int | None = None
        self.likely: SizeResult | None = None
        self._asking: dict[bool | None, Settings] = {}
        self._shares: dict[tuple[int, bool | None], Fraction | None] = {}
        self._answers: dict[tuple[int, int | None, bool | None], SizeResult | None] = {}
        self._taken: dict[tuple[int, int | None, bool | None], Taken | None] = {}
        self._served: set[bool | None] = set()
        self._start()

    @cached_property
    def _placed(self) -> tuple[Settings, tuple[str, ...]]:
        return spill(self.model, self.choice, start_of(self.plan))

    @property
    def settings(self) -> Settings:
        """The settings with which the engine starts, and where it leaves layers in host memory."""
        return self._placed[0]

    @property
    def spilled(self) -> tuple[str, ...]:
        """The parts that the engine leaves in host memory by itself."""
        return self._placed[1]

    @property
    def pools(self) -> int:
        """Pools with requests of their own, over the whole plan; 0 where the GPUs make up no engine."""
        return pools_of(self.plan)

    @property
    def asked_of_a_pool(self) -> int:
        """Requests of the fullest pool: what is required or in flight, dealt evenly."""
        return requests_of(self.plan)

    def _start(self) -> None:
        """The engine's start with the pool that is asked for; a refusal, or a result with a pool."""
        try:
            result = ask(self.model, self.choice, self.settings)
        except KvplanError as error:
            if error.code not in REFUSED:
                raise
            self.refusal = Refusal(error.code, error.message)
            return
        if result.refusal is not None and result.refusal.code == TOO_LARGE:
            result = replace(result, refusal=None)  # a finding of its own: kvplan.checking.rules.given_memory
        self.result = self.likely = result
        given, budget = self.plan.settings.kv_cache_memory, result.budget
        if given is not None:
            self.memory = self.safe_memory = given
        elif budget is not None:
            self.memory, self.safe_memory = budget.kv_pool_bytes, budget.kv_pool_low_bytes
            if self.plan.require.pool == SAFE:
                self.memory = self.safe_memory
        self.refusal = result.refusal
        if self.refusal is not None:
            return
        if uncounted(result):
            raise KvplanError("no-pool", IN_HOST, help="require.host_memory: 64GiB")
        if self.memory is None and not divides(self.choice.engine.name, self.plan.settings):
            raise KvplanError(
                "no-budget",
                f"how {self.choice.engine.name} divides a GPU's memory is not known: nothing can be checked",
                help="engine: " + ", ".join(BUDGETS),
            )
        if self.memory is None:
            raise KvplanError(
                "no-pool",
                f"what {self.plan.settings.gpu.name if self.plan.settings.gpu else 'the GPU'} leaves for the"
                f" cache of {self.plan.engine} is not known",
                detail=result.warnings,
                help="weights: 15GiB states the weights on each GPU" if budget is None else (),
            )
        if self.plan.require.pool == SAFE and budget is not None:
            self.result = in_safe_pool(
                self.model, self.choice, own_settings(self.choice.engine, self.settings), result
            )
            self.refusal = self.result.refusal

    def pooled(self, *, safe: bool | None = None) -> Settings:
        """The settings with the pool's bytes in the place of a budget, and the length as it came out.

        safe: which figure of the pool; None = the one that the plan requires.
        """
        memory = self.safe_memory if safe else self.memory
        budget = None if self.likely is None else self.likely.budget
        if safe is False and budget is not None and self.plan.settings.kv_cache_memory is None:
            memory = budget.kv_pool_bytes
        length = self.settings.max_model_len
        if length == LONGEST and self.result is not None:
            length = self.max_model_len
            if memory is not None and memory != self.memory:  # another pool: the length that it takes itself
                length = as_started(self.model, self.choice, started_in(self.settings, memory)).max_model_len
        starts = self.plan.settings.kv_cache_memory is None
        return replace(self.settings, kv_cache_memory=memory, max_model_len=length, starts=starts)

    def blocks_in(self, memory: int) -> int | None:
        """Blocks that the engine makes of so many bytes; None where it has no pool."""
        try:
            result = ask(self.model, self.choice, replace(self.pooled(), kv_cache_memory=memory))
        except KvplanError:
            return None
        return None if result.pool is None or result.refusal is not None else result.pool.num_blocks

    @property
    def max_model_len(self) -> int | None:
        """The length that the engine is started for; None where a request may outgrow its slot."""
        assert self.result is not None
        shown = self.result.settings
        if shown.get("context_shift"):
            return None
        for name in ("max_model_len", "max_seq_len", "context_len", "context_length", "n_ctx_seq"):
            if isinstance(shown.get(name), int):
                return int(shown[name])
        return self.plan.settings.max_model_len or self.model.max_model_len

    @property
    def max_num_seqs(self) -> int | None:
        """Requests that one engine runs at once, whatever the memory."""
        return None if self.result is None or self.result.pool is None else self.result.pool.max_num_seqs

    def answer(self, tokens: int, generated: int | None = None, *, safe: bool | None = None) -> SizeResult:
        """The engine's answer for a request of this length, so many tokens of it generated, in the plan's
        pool."""
        if safe not in self._asking:
            self._asking[safe] = self.pooled(safe=safe)
        asked = None if generated is None else max(1, generated)
        return ask(self.model, self.choice, replace(self._asking[safe], tokens=tokens, answer_tokens=asked))

    def answered(
        self, tokens: int, generated: int | None = None, *, safe: bool | None = None
    ) -> SizeResult | None:
        """The answer, remembered; None where the engine does not take the request at all."""
        key = tokens, generated, safe
        if key not in self._answers:
            try:
                self._answers[key] = self.answer(tokens, generated, safe=safe)
            except KvplanError:
                self._answers[key] = None
        return self._answers[key]

    def takes(self, tokens: int, generated: int | None = None, *, safe: bool | None = None) -> Taken | None:
        """The share of one pool that one request of the shape takes; None where the engine does not take it.

        An engine that serves one shape of the plan is asked for what the others take alone.
        """
        taken = getattr(self.choice.engine, "taken", None)
        if taken is None or safe not in self._served:
            found = self.answered(tokens, generated, safe=safe)
            if found is not None and found.refusal is None:
                self._served.add(safe)
            return None if found is None else taken_of(found)
        key = tokens, generated, safe
        if key not in self._taken:
            asked = None if generated is None else max(1, generated)
            settings = replace(self._asking[safe], tokens=tokens, answer_tokens=asked)
            own = own_settings(self.choice.engine, settings)
            try:
                self._taken[key] = taken(self.model, own, self.choice.version)
            except KvplanError:
                self._taken[key] = None
        return self._taken[key]

    def runs(self, tokens: int, generated: int | None = None, *, safe: bool | None = None) -> int:
        """Requests of the shape that run at once in one whole pool."""
        found = self.answered(tokens, generated, safe=safe)
        return 0 if found is None else runs_of(found)

    def generated(self, tokens: int) -> int | None:
        """Of a request of this length those tokens that the workload says are generated."""
        return generated_of(self.plan, tokens)

    def share(self, tokens: int, *, safe: bool | None = None) -> Fraction | None:
        """The share of one pool that is reserved for so many tokens; None where the engine takes none."""
        key = (tokens, safe)
        if key not in self._shares:
            self._shares[key] = self._share(tokens, safe=safe)
        return self._shares[key]

    def _share(self, tokens: int, *, safe: bool | None) -> Fraction | None:
        if tokens == 0:
            return Fraction(0)
        found = self.answered(tokens, safe=safe)
        return None if found is None else share_of(found)

    @cached_property
    def reserved(self) -> Fraction:
        """The share of one pool that is kept free: headroom and prompts kept for reuse."""
        kept = Fraction(self.plan.require.prefix_cache_bytes, self.memory) if self.memory else Fraction(0)
        return self.plan.require.headroom + kept

    def most(self, tokens: int, *, safe: bool | None = None, reserve: bool = True) -> int:
        """Requests of this length that the whole plan holds beside what is reserved."""
        generated = self.generated(tokens)
        taken = self.takes(tokens, generated, safe=safe)
        free = 1 - (self.reserved if reserve else Fraction(0))
        if taken is None or taken.share + taken.excess > free:
            return 0
        if free == 1:
            fitting = self.runs(tokens, generated, safe=safe)
        elif not taken.share:
            fitting = MOST
        else:
            fitting = max(1, int((free - taken.excess) / taken.share))
        seqs = self.max_num_seqs
        return min(fitting, seqs if seqs is not None else fitting) * self.pools

    def longest(self, requests: int) -> int:
        """The longest length of which so many requests fit; 0 where none does."""
        low, high = 0, self.max_model_len or 0
        while high - low > 0:
            middle = (low + high + 1) // 2
            if self.most(middle) >= requests:
                low = middle
            else:
                high = middle - 1
        return low

    def too_long(self, tokens: int) -> bool:
        """Whether the engine is started for less than a request of this length."""
        return self.max_model_len is not None and tokens > self.max_model_len

    @cached_property
    def unstated_budget(self) -> Budget | None:
        """The GPU's budget where the pool's bytes are stated by the plan; None where it is not known."""
        try:
            return ask(self.model, self.choice, replace(self.settings, kv_cache_memory=None)).budget
        except KvplanError:
            return None

    @property
    def host_tier_bytes(self) -> int | None:
        """The host-memory tier that the flags give, over all GPUs; None where the engine has none here."""
        if caches_in_host(self.plan):
            return self.plan.require.host_memory_bytes  # what there is, not what a flag gives
        tier = host_tiers().get(self.choice.engine.name)
        if tier is None:
            return None
        stated = dict(self.plan.serve).get(tier.flag)
        if not isinstance(stated, (int, float)) or isinstance(stated, bool):
            return 0
        plan = self.plan
        times = plan.gpus if tier.each_gpu else plan.replicas * plan.settings.data_parallel_size
        return int(Fraction(str(stated)) * tier.unit_bytes) * times
