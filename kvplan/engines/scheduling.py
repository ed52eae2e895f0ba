"""A scheduler's settings, as its engine reports them: a simulation's input next to the pool.

An engine whose scheduler is simulated has ``scheduling(model, settings, version) → Scheduling`` (or another
record of this file) in its folder's part ``scheduling``; it raises RefusedError(not-simulated) for what no
simulation here serves.
"""

from __future__ import annotations

from kvplan.errors import KvplanError, RefusedError
from kvplan.record import record


@record()
class ScheduledGroup:
    """Layers that share block tables: the fields of `kvplan.simulation.vllm.settings.Group`."""

    kind: str
    block: int
    span: int = 0
    checkpoint: int = 0


IN_TURN, BY_COUNTS = "in turn", "by counts"


@record()
class ScheduledRanks:
    """Data-parallel ranks of one server, each with a scheduler and a pool. lockstep: they step together;
    dealt: how the server deals requests to them, in turn, or by counts of those that wait and run."""

    lockstep: bool
    dealt: str = IN_TURN


@record()
class ScheduledDrafts:
    """Speculative decoding: the fields of `kvplan.simulation.vllm.drafts.Drafts` that settings decide."""

    tokens: int
    ahead: int
    slots: int
    drops: bool


@record()
class Scheduling:
    """vLLM's. release: whose rules; overlap: a step is scheduled while another runs; states: when states are
    kept for reuse; retention: tokens between the states and windows that are kept (None: all); stages: of a
    pipeline; ranks: of data parallelism, None where there is one."""

    release: str
    groups: tuple[ScheduledGroup, ...]
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enable_prefix_caching: bool
    chunked: bool
    overlap: bool
    states: str = "none"
    retention: int | None = None
    drafts: ScheduledDrafts | None = None
    stages: int = 1
    ranks: ScheduledRanks | None = None

    @property
    def step_tokens(self) -> int:
        """The most tokens that a step computes."""
        return self.max_num_batched_tokens


WINDOW_TOKENS, STATE_SLOTS = "swa_max_total_num_tokens", "max_mamba_cache_size"


@record()
class KeptStates:
    """States that SGLang's prefix cache keeps, in `STATE_SLOTS` slots of the answer's settings. extra_buffer:
    requests have slots to save them in; chunk: tokens of the kernel's; interval: mamba_track_interval."""

    extra_buffer: bool
    chunk: int
    interval: int = 256


@record()
class PromptsFirst:
    """SGLang's, under the names of its arguments. chunked_prefill_size: None where prompts are not cut; how
    many requests may run is the pool's; window: tokens of a window whose pages have a pool of their own (0:
    there is none), of `WINDOW_TOKENS` in the answer's settings."""

    release: str
    page_size: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int
    context_length: int
    radix_cache: bool
    overlap: bool
    enable_mixed_chunk: bool = False
    schedule_policy: str = "fcfs"
    radix_eviction_policy: str = "lru"
    schedule_conservativeness: float = 1.0
    window: int = 0
    states: KeptStates | None = None
    ranks: ScheduledRanks | None = None

    @property
    def step_tokens(self) -> int:
        """The most tokens that a step computes."""
        return self.chunked_prefill_size or max(self.max_prefill_tokens, self.context_length)


@record()
class CapacityFirst:
    """TensorRT-LLM's, under the names of its arguments. context_chunking_policy: None where prompts are not
    cut; how many requests may run is max_batch_size."""

    release: str
    tokens_per_block: int
    max_num_tokens: int
    max_batch_size: int
    max_seq_len: int
    enable_block_reuse: bool
    enable_partial_reuse: bool
    capacity_scheduler_policy: str
    context_chunking_policy: str | None
    overlap: bool

    @property
    def step_tokens(self) -> int:
        """The most tokens that a step computes."""
        return self.max_num_tokens


def not_simulated(what: str, way: str) -> KvplanError:
    """The refusal of something that no simulation here serves, with a suggestion."""
    return RefusedError("not-simulated", f"{what} is not simulated", help=way)
