"""The compiled plan of one model under one set of settings: groups, blocks, what a request takes.

vllm-project/vllm 0.32 vllm/v1/core/kv_cache_utils.py: get_kv_cache_configs, get_kv_cache_capacity,
_check_enough_kv_cache_memory.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.dtypes import SCALARS
from kvplan.engines.vllm.backends.table import DEFAULT_BLOCK_SIZE
from kvplan.engines.vllm.cache_layout.grouping import Group, block_bytes, make_groups
from kvplan.engines.vllm.cache_layout.layers import Built
from kvplan.engines.vllm.cache_layout.specs import (
    Charge,
    Scheduling,
    Spec,
    SpecKind,
    Steps,
    charge_of,
    kept_below,
    steps_of,
)
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.engines.vllm.start.versions import Rules
from kvplan.record import field, record, replace
from kvplan.results import PoolGroup


@record()
class PlanGroup:
    """One group as the scheduler sees it: the layers of the first pipeline stage.

    window: `scheduler_steps.kept_below`; aligned: a state of every block that a step ends in;
    drafts: states of draft tokens; first_page: bytes of its first layer's page.
    """

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    charge: Charge
    cross: bool
    state: bool
    window: int | None = None
    aligned: bool = False
    drafts: int = 0
    first_page: int = 1


@record()
class Plan:
    """The plan of the cache, with everything that a question needs worked out once.

    widest: one block on the fullest stage; replica_bytes: one block on all stages; full_request: blocks of
    one request of max_model_len; the growth of one more token while a request answers: steady, and per
    windowed group its window and share.
    """

    groups: tuple[PlanGroup, ...]
    bytes_per_block: tuple[int, ...]
    """of each pipeline stage; null blocks and overrides are applied when memory is known"""
    max_model_len: int
    max_num_seqs: int
    rules: Rules
    dcp: int
    steps: Steps
    asked_block: int = DEFAULT_BLOCK_SIZE
    """the block size that was set"""
    priced: int = 0
    """bytes that a block of a stage is taken to have at least: before 0.17 a group of layers of several
    sizes is priced whole, whichever of them a stage has"""
    widest: int = field(init=False)
    replica_bytes: int = field(init=False)
    pool_groups: tuple[PoolGroup, ...] = field(init=False)
    full_request: int = field(init=False)
    steady: Fraction = field(init=False)
    windowed: tuple[tuple[int, Fraction], ...] = field(init=False)

    def __post_init__(self) -> None:
        widest = max(self.bytes_per_block, default=0)
        listed = tuple(
            PoolGroup(g.kind, g.layers, g.block_size, g.page_bytes, g.charge.blocks(self.max_model_len))
            for g in self.groups
        )
        shares = [
            (group.window, Fraction(widest, group.block_size * group.charge.shards))
            for group in self.groups
            if not group.cross and group.charge.fixed is None
        ]
        derived = {
            "widest": widest,
            "replica_bytes": sum(self.bytes_per_block),
            "pool_groups": listed,
            "full_request": sum(group.blocks_per_request for group in listed),
            "steady": sum((share for limit, share in shares if limit is None), Fraction(0)),
            "windowed": tuple((limit, share) for limit, share in shares if limit is not None),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def reserved(self, tokens: int) -> int:
        """Blocks that the start-up planner reserves for one request."""
        counted = self.groups[:1] if self.rules.first_group_checked else self.groups
        return sum(group.charge.blocks(tokens) for group in counted)

    def held(self, tokens: int, encoder_tokens: int) -> int:
        """Blocks that one request takes: as reserved, but cross attention by its own encoder length."""
        blocks = 0
        for group in self.groups:
            if group.cross:
                blocks += -(-encoder_tokens // group.block_size)
            else:
                blocks += group.charge.blocks(tokens)
        return blocks

    def growth(self, tokens: int) -> Fraction:
        """Bytes of one more token of an answer on the fullest stage, before rounding to blocks."""
        grown = self.steady
        for limit, share in self.windowed:
            if tokens < limit:
                grown += share
        return grown

    def num_blocks(self, memory: int, override: int | None) -> int:
        """The smallest of the stages' counts, or the override."""
        if override is not None:
            return override
        return min((memory // max(size, self.priced) for size in self.bytes_per_block if size), default=1)

    def usable(self, memory: int, override: int | None) -> int:
        """Blocks that the start-up check counts on."""
        return self.num_blocks(memory, override) - int(self.rules.null_block_checked)

    def largest_length(self, memory: int, override: int | None) -> int:
        """The longest max_model_len of which one request fits; 0 where not even one token does."""
        usable = self.usable(memory, override)
        if self.reserved(1) > usable:
            return 0
        low, high = 1, self.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.reserved(middle) <= usable:
                low = middle
            else:
                high = middle - 1
        return low

    def printed(self, num_blocks: int) -> tuple[int, float]:
        """("KV cache size" tokens, maximum concurrency) as this release prints them."""
        per_request = self.full_request
        if self.rules.latent_blocks != "largest" and self.groups:
            pages = sum(g.charge.blocks(self.max_model_len) * g.page_bytes for g in self.groups)
            per_request = -(-pages // self.groups[0].page_bytes)
        concurrency = num_blocks / per_request if per_request else 0.0
        if self.rules.plain_concurrency and self.groups:
            concurrency = num_blocks * self.groups[0].block_size / self.max_model_len
        if self.rules.tokens_from_concurrency:
            return int(concurrency * self.max_model_len), concurrency
        if self.rules.slices and self.groups and all(group.state for group in self.groups):
            return num_blocks * self.asked_block, concurrency
        smallest = min((group.block_size for group in self.groups), default=1)
        tokens = num_blocks // max(len(self.groups), 1) * smallest
        return tokens * (self.dcp if self.rules.tokens_times_dcp else 1), concurrency


def make_plan(resolved: Resolved, rules: Rules, built: Built) -> Plan:
    """Group the whole model's specs, then project the groups onto the stages. Raises CannotGroupError."""
    if rules.slices and resolved.pp > 1:
        return _each_stage(resolved, rules, built)
    groups, stages = groups_of(resolved, rules, built), stages_of(built, resolved.pp)
    scheduling = Scheduling(
        in_flight=resolved.in_flight,
        retained=resolved.retained,
        encoder_budget=resolved.batch.tokens,
        shards=resolved.dcp,
    )
    per_stage = tuple(block_bytes([group.on(stage) for group in groups], rules) for stage in stages)
    return Plan(
        groups=tuple(_plan_group(group, stages[0], scheduling, resolved, rules) for group in groups),
        bytes_per_block=per_stage,
        max_model_len=resolved.lengths.max_model_len,
        max_num_seqs=resolved.batch.seqs,
        rules=rules,
        dcp=resolved.dcp,
        asked_block=resolved.block_size or DEFAULT_BLOCK_SIZE,
        priced=0
        if rules.stage_pages
        else max((g.bytes_per_block for g in groups if g.uniform_type), default=0),
        steps=steps_of(
            resolved, rules, {s.block_size for g in groups for s in g.specs if s.slots is not None}
        ),
    )


def _each_stage(resolved: Resolved, rules: Rules, built: Built) -> Plan:
    """Before 0.11 every stage groups its own layers; the scheduler has the first stage's groups."""
    plans = []
    for stage in range(resolved.pp):
        own = tuple(replace(entry, stage=0) for entry in built.specs if entry.stage == stage)
        plans.append(make_plan(replace(resolved, pp=1), rules, replace(built, specs=own)))
    return replace(plans[0], bytes_per_block=tuple(plan.bytes_per_block[0] for plan in plans))


def groups_of(resolved: Resolved, rules: Rules, built: Built) -> list[Group]:
    """The groups of the whole model; their layers are numbers of built.specs. Raises CannotGroupError."""
    specs: dict[int, Spec] = {}
    for number, entry in enumerate(built.specs):
        specs[number] = entry.spec
    quantized = resolved.kv_format.name not in SCALARS
    return make_groups(
        specs,
        rules,
        disable_hybrid=resolved.disable_hybrid,
        block_outermost=built.block_outermost,
        promoted_merge=rules.promoted_merge and (rules.promoted_quantized or not quantized),
        stages=stages_of(built, resolved.pp),
    )


def _plan_group(
    group: Group, stage: frozenset[int], scheduling: Scheduling, resolved: Resolved, rules: Rules
) -> PlanGroup:
    on_stage = group.on(stage)
    paged = on_stage if rules.stage_pages and on_stage.specs else group
    first = on_stage.first if on_stage.specs else group.first
    kinds = {spec.kind for spec in group.specs}
    kind = first.kind
    if len(kinds) > 1:
        kind = SpecKind.FULL if kinds <= {SpecKind.FULL, SpecKind.MLA} else SpecKind.MIXED
    page = paged.bytes_per_block if group.uniform_type else first.page_bytes
    charge = charge_of(first, scheduling)
    return PlanGroup(
        kind=kind.value,
        layers=len(on_stage.layers),
        block_size=first.block_size,
        page_bytes=page,
        charge=charge,
        cross=first.kind is SpecKind.CROSS,
        state=first.kind is SpecKind.RING or (first.kind is SpecKind.MAMBA and not first.every_block),
        window=kept_below(first.kind, charge.limit, resolved.in_flight),
        aligned=resolved.mamba_mode == "align" and first.kind is not SpecKind.RING,
        drafts=resolved.spec_tokens,
        first_page=first.page_bytes,
    )


def stages_of(built: Built, count: int) -> list[frozenset[int]]:
    """The specs (by number) of each pipeline stage."""
    return [
        frozenset(index for index, entry in enumerate(built.specs) if entry.stage == stage)
        for stage in range(count)
    ]
