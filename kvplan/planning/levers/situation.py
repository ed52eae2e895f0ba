"""The input of every lever: one replica's model, engine, settings, pool and load."""

from __future__ import annotations

from fractions import Fraction
from operator import attrgetter

from kvplan.deployment.counts import ask, reserved_bytes
from kvplan.engines.base import Choice, request_tokens
from kvplan.engines.budget.sharing import runs_of, usable_blocks
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.workload import Shape, Workload
from kvplan.record import record, replace
from kvplan.results import SizeResult, exact_number
from kvplan.settings import Settings, with_settings

SEVERAL_POOLS = "the engine fixes the sizes of several pools beforehand: not computed for it"


@record()
class Link:
    """A way for bytes to travel. low and high enclose the likely rate; seconds: before the first byte."""

    name: str
    bytes_per_second: int
    low: int
    high: int
    seconds: float = 0.0
    source: str = ""


@record()
class Seconds:
    """An estimated time and what encloses it."""

    value: float
    low: float
    high: float


class Situation:
    """One replica under one load. Answers are asked of the engine and remembered by length.

    requests: in flight on this replica. Raises KvplanError(no-pool) where the engine leaves no pool.
    """

    def __init__(
        self, model: Model, choice: Choice, settings: Settings, workload: Workload, requests: int
    ) -> None:
        self.model, self.choice, self.settings = model, choice, settings
        self.workload, self.requests = workload, requests
        longest = max(workload.shapes, key=attrgetter("tokens"))
        self.result = self.ask(workload.longest, answer_tokens=max(1, longest.output_tokens))
        if self.result.refusal is not None or self.result.pool is None:
            said = (
                self.result.refusal.message if self.result.refusal else "the engine answered without a pool"
            )
            raise KvplanError(
                "no-pool", said, help="name a GPU that holds the weights, or give --kv-cache-memory"
            )
        self.pool = self.result.pool
        self._bytes: dict[int, int] = {}

    def ask(self, tokens: int, **changes: object) -> SizeResult:
        """The engine's answer for one request of so many tokens."""
        return ask(
            self.model,
            self.choice,
            with_settings(self.settings, {"tokens": tokens, "requests": 1, **changes}),
        )

    def held_bytes(self, tokens: int) -> int:
        """Bytes of the fullest GPU that the engine counts for one request of so many tokens when it starts.

        Never less for a longer one: where the first and the last length of a block take as much, so do all
        between, and the engine is asked twice a block in place of once a length.
        """
        known = self._bytes.get(tokens)
        if known is not None:
            return known
        wide = min((group.block_size for group in self.pool.groups), default=1)
        first = (tokens - 1) // wide * wide + 1
        if tokens > 0 and wide > 2 and first + wide - 1 <= self.workload.longest:
            most = self._asked(first + wide - 1)
            if most == self._asked(first):
                for length in range(first, first + wide):
                    self._bytes[length] = most
                return most
        return self._asked(tokens)

    def _asked(self, tokens: int) -> int:
        known = self._bytes.get(tokens)
        if known is None:
            settings = with_settings(self.settings, {"tokens": tokens})
            known = self._bytes[tokens] = reserved_bytes(self.model, self.choice, settings)
        return known

    @property
    def usable_bytes(self) -> int:
        """Bytes of the pool that requests can have."""
        return usable_blocks(self.result) * self.pool.bytes_per_block

    @property
    def is_one_pool(self) -> bool:
        """Whether the pool's bytes decide: False where the engine fixes the sizes of several pools
        beforehand (SGLang's window and state pools), so that one of them may be full alone."""
        tokens = self.typical.tokens
        pool = self.ask(tokens).pool
        held = self.held_bytes(tokens)  # 0 where the cache lies in host memory
        return pool is not None and held > 0 and pool.requests_that_fit == self.usable_bytes // held

    @property
    def longest_len(self) -> int:
        """The longest request that the engine takes, in tokens."""
        stated = self.result.settings.get("max_model_len")
        own = request_tokens(self.model, replace(self.settings, tokens=None))
        return max(int(stated or own), self.workload.longest)

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes of one further token on the fullest GPU once windows are full."""
        return exact_number(self.result.per_gpu.bytes_per_token)

    @property
    def copies(self) -> Fraction:
        """Bytes on all GPUs of the replica per byte on the fullest one."""
        return Fraction(self.result.total.kv_bytes_per_request, self.result.per_gpu.kv_bytes_per_request or 1)

    @property
    def block_size(self) -> int:
        """Tokens of the largest unit in which a prompt is shared: every group's block."""
        return max(group.block_size for group in self.pool.groups)

    @property
    def typical(self) -> Shape:
        """A request of mean prompt and mean output."""
        workload = self.workload
        return Shape(
            max(1, round(workload.mean(name="input_tokens"))), round(workload.mean(name="output_tokens"))
        )

    def requests_with(self, **changes: object) -> int | None:
        """Requests of the typical shape that run at once with other settings; None: the engine would not
        start."""
        shape, more = self.typical, {"requests": 1, **changes}
        asked = replace(
            self.settings,
            tokens=shape.tokens,
            answer_tokens=max(1, shape.output_tokens),
            **more,  # type: ignore[arg-type]
        )
        try:
            result = ask(self.model, self.choice, asked)
        except KvplanError:
            return None
        return None if result.refusal or result.pool is None else runs_of(result)
