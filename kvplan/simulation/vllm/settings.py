"""The scheduler's settings, and the groups of caches that share its pool; checked once."""

from __future__ import annotations

from math import gcd, lcm

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record, replace
from kvplan.simulation.vllm.drafts import Drafts
from kvplan.simulation.vllm.offload.settings import Offload, check_offload
from kvplan.simulation.vllm.releases import Rules, rules_of
from kvplan.units import ceil_div

FULL, WINDOW, CHUNK, STATE, RING = "full", "window", "chunk", "state", "ring"
KINDS = (FULL, WINDOW, CHUNK, STATE, RING)
FCFS, PRIORITY = "fcfs", "priority"
ALIGN = "align"


@record()
class Group:
    """Layers that share block tables. kind: full, window, chunk, state, or ring (a block for each request,
    which the prefix cache leaves out); block: tokens of one block (for a
    compressed cache the tokens that one block stands for); span: the window or the chunk; checkpoint: where
    the kernel that computes a prompt also saves the state at its last block boundary, the tokens of whose
    multiples that may lie after the kernel's first (0: it does not)."""

    kind: str = FULL
    block: int = 16
    span: int = 0
    checkpoint: int = 0


@record()
class Engine:
    """vLLM's scheduler."""

    blocks: int
    """usable ones (its null block is one more)"""
    groups: tuple[Group, ...] = (Group(),)
    block: int = 16
    batch: int = 8192
    """max_num_batched_tokens"""
    sequences: int = 256
    """max_num_seqs"""
    length: int = 131_072
    """max_model_len"""
    caching: bool = True
    chunked: bool = True
    threshold: int = 0
    """long_prefill_token_threshold"""
    watermark: float = 0.0
    reserve: bool = True
    """scheduler_reserve_full_isl"""
    policy: str = FCFS
    overlap: bool = False
    """async scheduling"""
    states: str = "none"
    """mamba_cache_mode"""
    retention: int | None = None
    """prefix_cache_retention_interval (None: every block of windows and states is kept)"""
    release: str = "0.32"
    offload: Offload | None = None
    """caches outside the GPU"""
    drafts: Drafts | None = None
    """speculative decoding"""
    stages: int = 1
    """pipeline_parallel_size"""

    @property
    def depth(self) -> int:
        """Steps that are under way at once: one a stage, and one more that is scheduled ahead
        (vllm/config/vllm.py, max_concurrent_batches)."""
        return self.stages + 1 if self.overlap else self.stages

    @property
    def rules(self) -> Rules:
        """The rules of its release."""
        return rules_of(self.release, any(group.checkpoint for group in self.groups))

    @property
    def unit(self) -> int:
        """Tokens at whose multiples all groups' blocks end (vLLM's scheduler_block_size)."""
        return self.block if len(self.groups) == 1 else lcm(*(group.block for group in self.groups))

    @property
    def hashed(self) -> int:
        """Tokens of one hash (resolve_kv_cache_block_sizes)."""
        if len(self.groups) == 1 or not self.caching:
            return self.unit
        if self.states != ALIGN and _has_states(self):
            return self.unit
        return gcd(*(group.block for group in self.groups if group.kind != RING))

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * (self.blocks + 1))

    def check(self) -> None:
        """Refuse what vLLM's scheduler would not start with, or what is not described here."""
        check(self)

    def takes(self, prompt: int) -> bool:
        """Whether a prompt is taken at all."""
        return prompt < self.length

    @property
    def refuses(self) -> str:
        """Which prompts are not, in words."""
        return f"prompts of {self.length:,} tokens or more (max_model_len)"

    def answered(self, prompt: int, answer: int) -> int:
        """Tokens that it makes of so many that are asked for."""
        return min(prompt + answer, self.length) - prompt

    @property
    def caching_word(self) -> str:
        """The option that turns it on."""
        return "enable-prefix-caching"

    def with_caching(self) -> Engine | None:
        """With prefix caching; states have another pool then."""
        return None if self.caching or _has_states(self) else replace(self, caching=True)

    def with_offload(self, offload: Offload) -> Engine:
        """With tiers outside the GPU."""
        return replace(self, offload=offload)

    def cap(self, group: Group) -> int | None:
        """The most blocks that admission asks for one request in a group that gives blocks back."""
        flight = self.batch if self.rules.in_flight else self.depth * self.batch
        if group.kind == WINDOW:
            return ceil_div(min(group.span - 1 + flight, self.length), group.block) + 1
        if group.kind == CHUNK:
            return ceil_div(min(group.span + flight, self.length), group.block)
        return None


def check(engine: Engine) -> None:
    """Refuse what vLLM's scheduler would not start with, or what is not described here."""
    _check_numbers(engine)
    if not engine.groups:
        raise KvplanError("bad-simulation", "there is no group of caches", help="give one group, kind full")
    for group in engine.groups:
        _check_group(engine, group)
    if engine.policy not in (FCFS, PRIORITY):
        raise KvplanError(
            "bad-simulation", f"policy {engine.policy!r} is unknown", help=f"use {FCFS} or {PRIORITY}"
        )
    _check_lengths(engine)
    if engine.caching:
        _check_prefixes(engine)
    if engine.retention is not None and not engine.rules.retention:
        raise KvplanError(
            "bad-simulation", f"vLLM {engine.release} has no prefix_cache_retention_interval",
            help="leave it out, or use 0.29 or later",
        )  # fmt: skip
    if engine.stages > 1 and not engine.rules.stages:
        raise KvplanError(
            "not-simulated", f"a pipeline under vLLM {engine.release} is not simulated",
            help="-e vllm@0.32 or later, or --pp 1",
        )  # fmt: skip
    if engine.stages > 1 and (engine.drafts is not None or engine.offload is not None):
        raise KvplanError(
            "not-simulated", "a pipeline with drafts or with caches outside the GPU is not simulated",
            help=("--pp 1", "leave out --speculative and --offload"),
        )  # fmt: skip
    if engine.drafts is not None:
        _check_drafts(engine, engine.drafts)
    if engine.offload is not None:
        check_offload(engine.offload, engine.block)
        check_remote(engine, "offloading")


def _check_drafts(engine: Engine, drafts: Drafts) -> None:
    """Drafts beside full attention, by rules that were asked."""
    if not engine.rules.drafts:
        raise KvplanError(
            "not-simulated", f"speculative decoding under vLLM {engine.release} is not simulated",
            help="-e vllm@0.32 or later, or leave out --speculative",
        )  # fmt: skip
    if engine.offload is not None or any(group.kind != FULL for group in engine.groups):
        raise KvplanError(
            "not-simulated",
            "speculative decoding beside windows, chunks, states or caches outside the GPU is not simulated",
            help="leave out --speculative: without drafts a request needs more steps, and each is shorter",
        )
    if len(engine.groups) > 1 and drafts.drops:
        raise KvplanError(
            "not-simulated", "drafts that drop a prefix's last block beside several groups are not simulated",
            help="leave out --speculative",
        )  # fmt: skip
    if engine.rules.verified and engine.policy == PRIORITY and not engine.overlap:
        raise KvplanError(
            "not-simulated",
            f"speculative decoding by priority under vLLM {engine.release} without async scheduling is not"
            " simulated",
            help="use fcfs, or async scheduling",
        )
    if engine.batch <= drafts.slots or len(drafts.chances) != drafts.tokens or drafts.tokens < 1:
        raise KvplanError(
            "bad-simulation", f"{drafts.tokens} drafted tokens in steps of {engine.batch}",
            help="raise max_num_batched_tokens, or draft fewer tokens",
        )  # fmt: skip


def _check_numbers(engine: Engine) -> None:
    least = {
        "blocks": engine.blocks, "max_num_batched_tokens": engine.batch, "max_num_seqs": engine.sequences,
        "max_model_len": engine.length, "block_size": engine.block,
        "pipeline_parallel_size": engine.stages,
    }  # fmt: skip
    for name, value in least.items():
        if not _whole(value) or value < 1:
            raise KvplanError(
                "bad-simulation", f"{name} is {value}", help="give a whole number of at least 1"
            )
    if not isinstance(engine.watermark, (int, float)) or not 0 <= engine.watermark < 1:
        raise KvplanError("bad-simulation", f"watermark is {engine.watermark}", help="give a share below 1")
    for name, number in (
        ("long_prefill_token_threshold", engine.threshold),
        ("prefix_cache_retention_interval", 0 if engine.retention is None else engine.retention),
    ):
        if not _whole(number) or number < 0:
            raise KvplanError("bad-simulation", f"{name} is {number}", help="give a whole number, 0 or more")


def _check_lengths(engine: Engine) -> None:
    """A step's tokens, its sequences and the longest request, beside one another."""
    if engine.batch < engine.sequences:
        raise KvplanError(
            "bad-simulation",
            f"max_num_batched_tokens {engine.batch} is below max_num_seqs {engine.sequences}: vLLM refuses",
            help=f"lower max_num_seqs to {engine.batch}",
        )
    if engine.threshold > engine.length:
        raise KvplanError(
            "bad-simulation",
            f"long_prefill_token_threshold {engine.threshold} is above max_model_len {engine.length}:"
            " vLLM refuses it",
            help=f"lower it to {engine.length} or less",
        )
    if not engine.chunked and engine.batch < engine.length:
        raise KvplanError(
            "bad-simulation",
            f"prompts are not cut, and max_num_batched_tokens {engine.batch} is below max_model_len"
            f" {engine.length}: vLLM refuses it",
            help=f"lower max_model_len to {engine.batch}, or let prompts be cut",
        )


def _check_prefixes(engine: Engine) -> None:
    """Prefix caching's requirements of states and blocks."""
    if engine.states == ALIGN and len(engine.groups) > 1 and _finer_states(engine):
        raise KvplanError(
            "not-simulated",
            "state blocks wider than the finest hash (partial prefix hits) are not simulated",
            help=f"give every group blocks of {engine.unit} tokens",
        )
    if not engine.rules.states_cached and engine.states != ALIGN and _has_states(engine):
        raise KvplanError(
            "bad-simulation",
            f"vLLM {engine.release} has no prefix cache beside states that are kept in mode {engine.states}",
            help=f"give states {ALIGN}, or switch prefix caching off",
        )
    if any(group.block % engine.hashed for group in engine.groups if group.kind != RING):
        raise KvplanError(
            "bad-simulation",
            f"prefixes are known in units of {engine.hashed} tokens, and a group has smaller blocks: vLLM"
            " refuses it",
            help=f"give every group blocks of {engine.hashed} tokens, or switch prefix caching off",
        )


def check_remote(engine: Engine, what: str) -> None:
    """Raise KvplanError where blocks that come from elsewhere are not described."""
    if len(engine.groups) > 1 or engine.groups[0].kind != FULL:
        raise KvplanError(
            "not-simulated", f"{what} beside windows, chunks or states is not simulated",
            help="a model of full attention alone, or without it",
        )  # fmt: skip
    if not engine.caching:
        raise KvplanError(
            "not-simulated", f"{what} without prefix caching is not simulated",
            help="--enable-prefix-caching",
        )  # fmt: skip
    if engine.policy != FCFS:
        raise KvplanError(
            "not-simulated", f"{what} with scheduling by {engine.policy} is not simulated",
            help=f"use {FCFS}",
        )  # fmt: skip


def _check_group(engine: Engine, group: Group) -> None:
    if group.kind not in KINDS:
        near = did_you_mean(group.kind, KINDS)
        raise KvplanError(
            "bad-simulation", f"a group of kind {group.kind!r} is unknown",
            help=f"did you mean {near}?" if near else f"kinds: {', '.join(KINDS)}",
        )  # fmt: skip
    if group.block < 1 or (group.kind in (WINDOW, CHUNK) and group.span < 1):
        raise KvplanError(
            "bad-simulation", f"a {group.kind} group has block {group.block} and span {group.span}",
            help="give both as whole numbers of at least 1",
        )  # fmt: skip
    if len(engine.groups) == 1 and engine.caching and group.block != engine.block:
        raise KvplanError(
            "bad-simulation",
            f"the only group's blocks hold {group.block} tokens, the engine's {engine.block}",
            help=f"give block_size {group.block}",
        )
    if group.kind == CHUNK and engine.caching and group.block != engine.unit:
        raise KvplanError(
            "not-simulated", "vLLM has no prefix caching for chunks beside groups of other block sizes",
            help=f"give every group blocks of {group.block} tokens, or switch prefix caching off",
        )  # fmt: skip


def _whole(number: object) -> bool:
    return type(number) is int


def _has_states(engine: Engine) -> bool:
    return any(group.kind == STATE for group in engine.groups)


def _finer_states(engine: Engine) -> bool:
    return any(group.kind == STATE and group.block > engine.hashed for group in engine.groups)
