"""SGLang's scheduler settings; checked once."""

from __future__ import annotations

from kvplan.errors import KvplanError, RefusedError
from kvplan.record import record, replace
from kvplan.simulation.sglang.tree import ORDERS
from kvplan.simulation.time.refusals import unknown

FCFS, LPM, LOF, DFS = "fcfs", "lpm", "lof", "dfs-weight"
POLICIES = (FCFS, LPM, LOF, DFS)
_UNKNOWN = {
    "random": "draws its order",
    "priority": "is --enable-priority-scheduling, which preempts",
    "routing-key": "needs the clients' keys",
    "hrrn": "compares the clients' request ids",
    "shortest-prefill-first": "is experimental",
}
KNOWN = ("0.5.23",)
MOST_PAGE = 1 << 16
INITIAL_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
"""SGLANG_INIT_NEW_TOKEN_RATIO, _MIN_NEW_TOKEN_RATIO_FACTOR, _NEW_TOKEN_RATIO_DECAY_STEPS."""


@record()
class SglangEngine:
    """SGLang's scheduler and pools, as a simulation runs them."""

    blocks: int
    """pages of its pool"""
    block: int = 1
    """tokens of one (page_size)"""
    chunk: int | None = 8192
    """chunked_prefill_size, None: prompts are not cut"""
    batch: int = 16_384
    """max_prefill_tokens"""
    sequences: int = 256
    """max_running_requests"""
    length: int = 131_072
    """context_length"""
    caching: bool = True
    """the radix cache"""
    policy: str = FCFS
    order: str = "lru"
    """radix_eviction_policy"""
    overlap: bool = True
    """the overlap scheduler"""
    mixed: bool = False
    """enable_mixed_chunk"""
    conservativeness: float = 1.0
    fixed: bool = False
    """clients ask for answers of exactly their length (ignore_eos)"""
    window: int = 0
    """tokens of a window whose pages have a pool of their own (0: there is none)"""
    window_blocks: int = 0
    """pages of that pool"""
    state_slots: int = 0
    """of its pool of states (0: there is none)"""
    extra_buffer: bool = True
    """mamba_radix_cache_strategy: requests have slots to save states in"""
    state_chunk: int = 64
    """tokens of which the states' kernel makes a chunk"""
    track_interval: int = 256
    """mamba_track_interval"""
    release: str = KNOWN[-1]

    @property
    def depth(self) -> int:
        """Steps that are under way at once."""
        return 2 if self.overlap else 1

    @property
    def tokens(self) -> int:
        return self.blocks * self.block

    @property
    def hashed(self) -> int:
        """Tokens of one identity."""
        return self.block

    @property
    def offload(self) -> None:
        """No tiers outside the GPU."""
        return None

    @property
    def most(self) -> int:
        """Tokens of the longest request, prompt and answer (max_req_len)."""
        return min(self.length - 1, self.tokens - 1)

    def takes(self, prompt: int) -> bool:
        """Whether a prompt is taken at all (validate_input_length)."""
        return prompt < self.most - 5

    @property
    def refuses(self) -> str:
        """Which prompts are not, in words."""
        limit = "the context" if self.length <= self.tokens else "the pool"
        return f"prompts of {max(self.most - 5, 0):,} tokens or more ({limit}, less six)"

    def answered(self, prompt: int, answer: int) -> int:
        """Tokens that it makes of so many that are asked for (init_req_max_new_tokens, and the allocator's
        max_new_tokens_for_memory); at least one, for the first comes with the prompt."""
        whole = -(-prompt // self.block) * self.block
        return max(1, min(answer, self.most - prompt - 1, self.tokens - whole - self.block - 1))

    @property
    def unit(self) -> int:
        return self.block

    @property
    def caching_word(self) -> str:
        """The option that turns it on."""
        return "the radix cache"

    def with_caching(self) -> SglangEngine | None:
        """With the radix cache."""
        return None if self.caching else replace(self, caching=True)

    def with_offload(self, offload: object) -> SglangEngine:
        """Raises RefusedError: tiers outside the GPU are its hierarchical cache."""
        raise RefusedError(
            "not-simulated", "SGLang's hierarchical cache is not simulated", help="-e vllm, or no --offload"
        )

    def check(self) -> None:
        """Refuse what SGLang would not start with, or what is not described here."""
        _check(self)


def _check(engine: SglangEngine) -> None:
    least = {
        "pages": engine.blocks, "max_prefill_tokens": engine.batch, "max_running_requests": engine.sequences,
        "context_length": engine.length, "page_size": engine.block,
        "chunked_prefill_size": 1 if engine.chunk is None else engine.chunk,
    }  # fmt: skip
    for name, value in least.items():
        if type(value) is not int or value < 1:
            raise _bad(f"{name} is {value}", "give a whole number of at least 1")
    if engine.block > MOST_PAGE:
        raise _bad(f"page_size is {engine.block}", f"give at most {MOST_PAGE}")
    share: object = engine.conservativeness
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1000:
        raise _bad(f"schedule_conservativeness is {share}", "give a number from 0 to 1000")
    if engine.chunk is not None and engine.chunk % engine.block:
        raise _bad(
            f"chunked_prefill_size {engine.chunk} is no multiple of page_size {engine.block}: SGLang refuses",
            f"give {max(1, engine.chunk // engine.block) * engine.block}",
        )
    for name, word in (
        ("schedule_policy", engine.policy),
        ("radix_eviction_policy", engine.order),
        ("release", engine.release),
    ):
        said: object = word
        if not isinstance(said, str):
            raise _bad(f"{name} is {said}", "give one of its words")
    if engine.policy in _UNKNOWN:
        raise RefusedError(
            "not-simulated",
            f"schedule_policy {engine.policy} {_UNKNOWN[engine.policy]}: it is not simulated",
            help=f"use {', '.join(POLICIES)}",
        )  # fmt: skip
    if engine.policy not in POLICIES:
        raise unknown("policy", engine.policy, POLICIES)
    if engine.order not in ORDERS:
        raise unknown("eviction", engine.order, ORDERS)
    if engine.release not in KNOWN:
        raise RefusedError(
            "not-simulated",
            f"how SGLang {engine.release} schedules is not known here: its own scheduler was not asked",
            help=f"use sglang@{KNOWN[-1]}",
        )
    _check_second_pool(engine)
    if engine.tokens < 16 * engine.block:
        raise _bad(f"a pool of {engine.blocks} pages", "give at least 16 pages")


def _check_second_pool(engine: SglangEngine) -> None:
    """The pool of windows, or of states."""
    if engine.window and not engine.caching:
        raise RefusedError(
            "not-simulated", "SGLang's pool of windows without the radix cache is not simulated",
            help="the radix cache, or --disable-hybrid-swa-memory",
        )  # fmt: skip
    if engine.window and (engine.window < 0 or engine.window_blocks < 1):
        raise _bad(f"a pool of {engine.window_blocks} pages for windows of {engine.window}", "give both")
    for name, value in (("state_chunk", engine.state_chunk), ("track_interval", engine.track_interval)):
        if type(value) is not int or value < 1:
            raise _bad(f"{name} is {value}", "give a whole number of at least 1")
    if engine.state_slots:
        _check_states(engine)


def _check_states(engine: SglangEngine) -> None:
    """The pool of states: what SGLang's radix cache keeps, and nothing else."""
    if type(engine.state_slots) is not int or engine.state_slots < 1:
        raise _bad(f"state_slots is {engine.state_slots}", "give a whole number of at least 1")
    if not engine.caching or engine.window or engine.mixed:
        raise RefusedError(
            "not-simulated", "SGLang's states without the radix cache, beside windows or in mixed chunks",
            help="the radix cache, without --enable-mixed-chunk",
        )  # fmt: skip
    if not engine.extra_buffer and (engine.block > 1 or engine.overlap):
        raise _bad(
            "states without extra buffers need pages of one token and no overlap: SGLang refuses it",
            "extra_buffer, or --page-size 1 --disable-overlap-schedule",
        )


def _bad(what: str, way: str) -> KvplanError:
    return KvplanError("bad-simulation", what, help=way)
