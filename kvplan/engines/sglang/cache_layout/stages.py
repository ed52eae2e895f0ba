"""The inputs of the pools: stages, their bytes, the tokens found, and the most requests that run.

sgl-project/sglang 0.5.23 mem_cache/kv_cache_configurator.py (resolve_max_num_reqs).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.sglang.cache_layout.cells import Cell
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.record import record
from kvplan.units import round_up

MOST_REQUESTS, LEAST_REQUESTS = 4096, 2048


class PoolError(Exception):
    """SGLang would not start: why."""


@record()
class Sizes:
    """Tokens of the pools of one rank (the smallest stage decides), state slots, and who may run."""

    max_total_num_tokens: int
    window_tokens: int
    state_slots: int
    max_running_requests: int


@record()
class Compressed:
    """DeepSeek-V4's bytes: of a window token, of a full token, and of the request-scoped states.

    Its window.
    """

    window: Fraction
    full: Fraction
    state_row: int
    layers_128: int
    ring: int
    sliding_window: int

    def fixed(self, requests: int) -> int:
        """ceil128((requests + 2) · ring + 1) rows of value and score in fp32 for each ratio-128 layer."""
        if not self.layers_128:
            return 0
        return round_up((requests + 2) * self.ring + 1, 128) * self.state_row * self.layers_128


@record()
class Stage:
    """One pipeline stage: what its layers and the draft's take.

    layers: how many it has; keeping: how many of them keep all tokens, a window, a state. compressed:
    DeepSeek-V4.
    """

    layers: int
    keeping: tuple[int, int, int]
    target: Cell
    draft_full: int = 0
    draft_window: int = 0
    extra: int = 0
    compressed: Compressed | None = None

    @property
    def full(self) -> int:
        """Bytes of a token that every layer keeps."""
        return self.target.full + self.target.index + self.draft_full + self.extra

    @property
    def window(self) -> int:
        return self.target.window + self.draft_window


@record()
class Pools:
    """Everything about (model, arguments) that does not depend on memory or request."""

    arguments: Arguments
    stages: tuple[Stage, ...]
    slot_bytes: int
    window: int | None

    @property
    def compressed(self) -> bool:
        return self.stages[0].compressed is not None

    @property
    def keeps(self) -> bool:
        """Whether anything outlives a step: an encoder keeps nothing, so no memory bounds its requests."""
        return bool(self.slot_bytes) or any(self.cell(stage) for stage in self.stages)

    def cell(self, stage: Stage) -> Fraction:
        """Bytes per token of max_total_num_tokens."""
        if stage.compressed is not None:
            return stage.compressed.full
        if not stage.full:
            return Fraction(stage.window)
        return stage.full + self.arguments.swa_ratio * stage.window


def running(arguments: Arguments, tokens: int, slots: int) -> int:
    """clamp(512 · tokens / context, 2048, 4096), at most half the tokens, then what the states serve."""
    rules, given = arguments.rules, arguments.max_running_requests
    estimated = max(min(512 * tokens // arguments.context_len, MOST_REQUESTS), LEAST_REQUESTS)
    if given is None:
        most = min(estimated + rules.one_more, tokens // 2)
    else:
        most = max(1, given // arguments.attn_dp)
        if rules.given_halved:
            most = min(most, tokens // 2)
        elif rules.given_estimated:
            most = min(most, estimated)
    if slots:
        most = min(most, slots // arguments.slots_per_request)
        if most <= 0:
            raise PoolError(
                f"{slots} state slots are fewer than the {arguments.slots_per_request} of one request"
            )
    return most
