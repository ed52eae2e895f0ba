"""vLLM's one backing allocation and the strided views of its layers: one int8 tensor, over whose bytes all
groups lie, because a block id belongs to one group at a time; block 0 is the null block.

vllm-project/vllm 0.32: v1/core/kv_cache_utils.py (get_kv_cache_config_from_groups), v1/kv_cache_interface.py
(compute_layout_strides, create_kv_cache_views), v1/worker/utils.py (allocate_kv_cache),
model_executor/layers/mamba/abstract.py (bind_kv_cache). Earlier releases cut the same bytes into one tensor
for each place of the largest group.
"""

from __future__ import annotations

from kvplan.engines.tensors.base import (
    Allocation,
    BlockPool,
    Component,
    Group,
    GroupKind,
    Layout,
    Rank,
    View,
)
from kvplan.engines.tensors.parts import PACKED, pooled, side_by_side, stored
from kvplan.engines.vllm.cache_layout.built_model import Served
from kvplan.engines.vllm.cache_layout.grouping import Group as Planned
from kvplan.engines.vllm.cache_layout.layers import Built, build
from kvplan.engines.vllm.cache_layout.plan import Plan, groups_of, make_plan, stages_of
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind
from kvplan.engines.vllm.engine import Vllm
from kvplan.engines.vllm.start.architectures import as_run
from kvplan.engines.vllm.start.resolve import resolve
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import Pool, Request
from kvplan.settings import Settings
from kvplan.terms import Term

_KINDS = {
    SpecKind.SLIDING: GroupKind.WINDOW,
    SpecKind.SLIDING_MLA: GroupKind.WINDOW,
    SpecKind.CHUNKED: GroupKind.CHUNK,
    SpecKind.MAMBA: GroupKind.STATE,
    SpecKind.CROSS: GroupKind.CROSS,
    SpecKind.RING: GroupKind.STATE,
}
HEADS_OUTSIDE = frozenset({"FLASHINFER"})
"""Backends whose kernels on compute capability 10 read head-major blocks (flashinfer.py,
supported_kv_cache_layouts)."""
SPLIT_SLOTS = frozenset({"nvfp4"})
"""Formats that keep K and V in head slots of their own (flashinfer.py, customize_spec)."""


@record()
class _Page:
    """One block of one layer: what lies in it, and whether heads lie outside tokens."""

    spec: Spec
    heads: int
    states: int
    sides: tuple[tuple[Component, ...], ...]
    heads_outside: bool

    @property
    def content(self) -> int:
        """Bytes of one state of one head, of all sides that share it."""
        return self.spec.real_page_bytes // (self.heads * self.states * len(self.sides))


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """The rank's allocation, views, block pool and groups. Raises KvplanError(no-memory, engine-refuses)."""
    result, pool = pooled(Vllm(), model, settings, version)
    model, rules = as_run(model, version), rules_of(version)
    resolved = resolve(model, settings, rules)
    built = build(Served(model, resolved, rules, version))
    plan = make_plan(resolved, rules, built)
    if rank.stage >= resolved.pp:
        raise KvplanError("bad-rank", f"there are {resolved.pp} pipeline stages, no stage {rank.stage}")
    stage = stages_of(built, resolved.pp)[rank.stage]
    groups = [group.on(stage) for group in groups_of(resolved, rules, built)]
    # LBNHC [layer, block, token, head, K|V]; LBHNC, heads outside tokens (FlashInfer on Blackwell); BLHNC,
    # pages of several sizes side by side in a block (DeepSeek-V4).
    heads_outside = built.block_outermost or (
        resolved.device.major == 10 and bool(HEADS_OUTSIDE.intersection(built.backends))
    )
    per_block = max(sum(spec.page_bytes for spec in group.specs) for group in groups)
    views = [
        view
        for index, group in enumerate(groups)
        for view in _views(group, index, built, pool.num_blocks, per_block, heads_outside)
    ]
    size = per_block * pool.num_blocks
    made = tuple(_group(plan, index, group) for index, group in enumerate(groups))
    tokens, requests = _at_once(made, pool, result.request, rank.context)
    return Layout(
        engine="vllm",
        version=version,
        rank=rank,
        allocations=(Allocation("kv_cache", (size,), "int8", size),),
        views=tuple(views),
        pools=(BlockPool("blocks", pool.num_blocks, first=1),),
        groups=made,
        predicted_bytes=plan.bytes_per_block[rank.stage] * pool.num_blocks,
        tokens=tokens,
        encoder_tokens=result.request.encoder_tokens,
        requests=requests,
        max_model_len=plan.max_model_len,
        num_attention_heads=max(1, model.num_attention_heads // resolved.tp),
        settles=True,
    )


def _at_once(groups: tuple[Group, ...], pool: Pool, request: Request, context: int) -> tuple[int, int]:
    """Tokens of the requests that are validated, and how many of them the blocks hold.

    Of a burst not all are at their longest when most blocks are held. The longest length, between the prompt
    and the whole request, of which ``pool.max_running`` are held at once; the whole length where they are
    anyway. Of what is held least lies before a block is taken: only lengths at the end of a block are tried.
    """
    usable, encoder = pool.num_blocks - 1, request.encoder_tokens

    def holds(tokens: int) -> int:
        asked = sum(group.asked(tokens, encoder) for group in groups)
        each = sum(group.settled(tokens, encoder, context=context) for group in groups)
        if usable < asked:
            return 0
        return 1 + (usable - asked) // each if each else pool.requests_that_fit

    whole = holds(request.tokens)
    if whole >= pool.max_running:
        return request.tokens, whole
    prompt = max(1, request.tokens - request.answer_tokens)
    spans = {group.block_size * group.shards for group in groups if group.fixed is None}
    ends = {end for span in spans for end in range(request.tokens // span * span, prompt - 1, -span)}
    for tokens in sorted({prompt, *ends}, reverse=True):
        if (held := holds(tokens)) >= pool.max_running:
            return tokens, held
    return request.tokens, whole


def _group(plan: Plan, index: int, group: Planned) -> Group:
    planned = plan.groups[index]
    charge = planned.charge
    spec = group.first if group.specs else None
    kind = _KINDS.get(SpecKind(planned.kind), GroupKind.FULL)
    return Group(
        name=f"{planned.kind}.{index}",
        kind=kind,
        pool=0,
        layers=len(group.layers),
        block_size=planned.block_size,
        window=spec.window if spec is not None and kind in (GroupKind.WINDOW, GroupKind.CHUNK) else None,
        limit=charge.limit,
        extra=charge.extra,
        fixed=charge.fixed,
        shards=charge.shards,
        kept=1 + planned.drafts if planned.aligned and charge.fixed is not None else None,
    )


def _views(
    group: Planned, index: int, built: Built, num_blocks: int, per_block: int, heads_outside: bool
) -> list[View]:
    """Layers of one spec lie behind each other; the specs of a group in the order in which they appear."""
    by_spec: dict[Spec, list[int]] = {}
    for number, spec in zip(group.layers, group.specs, strict=True):
        # A group of one spec has merged what its layers differ in (kept windows); places follow the layers.
        by_spec.setdefault(spec if group.uniform_type else group.first, []).append(number)
    found: list[View] = []
    offset = 0
    for spec, numbers in by_spec.items():
        page = _page(spec, heads_outside)
        block_stride = per_block if built.block_outermost else spec.page_bytes
        layer_stride = spec.page_bytes if built.block_outermost else spec.page_bytes * num_blocks
        for number in numbers:
            layer = built.specs[number].layer
            found += _layer_views(page, layer, number, index, num_blocks, offset, block_stride)
            offset += layer_stride
    return found


def _layer_views(
    page: _Page, layer: int, number: int, group: int, num_blocks: int, offset: int, block_stride: int
) -> list[View]:
    content, slots = page.content, page.heads * len(page.sides)
    head_stride = content * page.states if page.heads_outside else content
    state_stride = content if page.heads_outside else content * slots
    return [
        View(
            name=f"layer.{layer}.{number}." + "+".join(component.name for component in components),
            layer=layer,
            group=group,
            allocation=0,
            offset=offset + side * page.heads * head_stride,
            blocks=num_blocks,
            heads=page.heads,
            states=page.states,
            content=content,
            block_stride=block_stride,
            head_stride=head_stride,
            state_stride=state_stride,
            components=components,
        )
        for side, components in enumerate(page.sides)
    ]


def _page(spec: Spec, heads_outside: bool) -> _Page:
    """Heads and content of one state: from the terms that the spec was made of."""
    states = 1 if spec.slots is not None else spec.block_size // spec.tokens_per_state
    terms = [Term(*entry) for entry in spec.shape if isinstance(entry, tuple)]
    parts = [stored(term) for term in terms]
    if not parts:  # DeepSeek-V4's records, which do not follow from terms
        dtype = "float32" if spec.shape[0] == "compressor" else PACKED
        component = Component(str(spec.shape[0]), 0, spec.state_bytes, dtype)
        return _Page(spec, 1, states, ((component,),), heads_outside)
    heads = parts[0].heads if spec.slots is None and len({part.heads for part in parts}) == 1 else 1
    if heads == 1:
        parts = [part.whole() for part in parts]
    sides: tuple[tuple[Component, ...], ...] = (side_by_side(parts),)
    if len(parts) == 2 and all(part.packing.name in SPLIT_SLOTS for part in parts):
        sides = tuple((part.component(),) for part in parts)
    return _Page(spec, heads, states, sides, heads_outside)
