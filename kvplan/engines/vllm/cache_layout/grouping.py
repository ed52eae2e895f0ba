"""Which layers share a block table.

vllm-project/vllm 0.32 vllm/v1/core/kv_cache_utils.py, get_kv_cache_groups and what it calls.

Function by function in the original's order. Layers are numbers in the order in which vLLM registers them.

What a group is: layers with one block table, and which layers' specs are alike.

vllm-project/vllm 0.32 vllm/v1/kv_cache_interface.py (KVCacheGroupSpec, UniformTypeKVCacheSpecs) and
v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import lcm
from typing import TYPE_CHECKING

from kvplan.engines.vllm.cache_layout.specs import FULL_KINDS, LOCAL_KINDS, SLIDING_KINDS, Spec, SpecKind
from kvplan.engines.vllm.versions import Rules
from kvplan.later import later
from kvplan.record import record, replace
from kvplan.units import ceil_div, round_up

if TYPE_CHECKING:
    from kvplan.engines.vllm.cache_layout import side_by_side
else:
    side_by_side = later("kvplan.engines.vllm.cache_layout", "side_by_side")


Specs = dict[int, Spec]


class CannotGroupError(Exception):
    """vLLM stops with this message."""


@record()
class Group:
    """Layers with one block table; ``specs`` has one entry for each layer of ``layers``."""

    layers: tuple[int, ...]
    specs: tuple[Spec, ...]
    uniform_type: bool = False

    @property
    def first(self) -> Spec:
        return self.specs[0]

    def on(self, stage: frozenset[int]) -> Group:
        """The part of the group that lies on one pipeline stage."""
        kept = [(layer, spec) for layer, spec in zip(self.layers, self.specs, strict=True) if layer in stage]
        return Group(tuple(layer for layer, _ in kept), tuple(spec for _, spec in kept), self.uniform_type)

    @property
    def bytes_per_block(self) -> int:
        counts = Counter(map(id, self.specs))
        return sum(spec.page_bytes * counts[id(spec)] for spec in apart(self.specs))


def apart(specs: Iterable[Spec]) -> list[Spec]:
    """Each object once: the layers of a kind have one spec together."""
    return list({id(spec): spec for spec in specs}.values())


def block_bytes(groups: Sequence[Group], rules: Rules) -> int:
    """One block of the pool: the group with most bytes, or what `Rules.latent_blocks` says."""
    largest = max((group.bytes_per_block for group in groups), default=0)
    largest = round_up(largest, lcm(*(spec.stride for group in groups for spec in apart(group.specs))))
    if rules.latent_blocks == "largest" or len(groups) < 2 or not all(one.uniform_type for one in groups):
        return largest
    pages = [Counter(spec.page_bytes for spec in group.specs) for group in groups]
    if rules.latent_blocks == "tuples":
        return sum(pages[0]) * max(max(counts.values(), default=0) for counts in pages)
    most: Counter[int] = Counter()
    for counts in pages:
        most |= counts
    return sum(page * count for page, count in most.items())


def group_of(specs: Specs, layers: Sequence[int], *, uniform_type: bool = False) -> Group:
    return Group(tuple(layers), tuple(specs[layer] for layer in layers), uniform_type)


def are_mergeable(specs: Iterable[Spec]) -> bool:
    """merge() of the first spec's class accepts them all."""
    specs = apart(specs)
    first = specs[0]
    if first.kind in (SpecKind.FULL, SpecKind.MLA):
        if any(spec.kind is not first.kind or spec.attention != first.attention for spec in specs):
            return False
        return len({spec.kept_window for spec in specs if spec.kept_window is not None}) <= 1
    return all(spec == first for spec in specs)


def are_uniform(specs: Iterable[Spec]) -> bool:
    """UniformTypeKVCacheSpecs.is_uniform_type: the same number of token slots in every layer."""
    specs = apart(specs)
    first = specs[0]
    if any(spec.block_size != first.block_size or spec.dcp_sharded != first.dcp_sharded for spec in specs):
        return False
    if first.kind in FULL_KINDS:
        return all(spec.kind in FULL_KINDS for spec in specs)
    if first.kind is SpecKind.SLIDING:
        return all(spec.kind in SLIDING_KINDS and spec.window == first.window for spec in specs)
    if first.kind is SpecKind.MAMBA:
        alike = (first.slots, first.page_bytes, first.replicated)
        return all(
            spec.kind is SpecKind.MAMBA and (spec.slots, spec.page_bytes, spec.replicated) == alike
            for spec in specs
        )
    return all(spec.kind is first.kind and spec.window == first.window for spec in specs)


ORDER = dict.fromkeys(SpecKind, 1) | {SpecKind.FULL: 0, SpecKind.MLA: 0, SpecKind.SLIDING: 2}
"""Before 0.11 groups are in the order of their type_id's words: full, local and mamba, sliding."""


def make_groups(
    specs: Specs,
    rules: Rules,
    *,
    disable_hybrid: bool,
    block_outermost: bool,
    promoted_merge: bool = True,
    stages: Sequence[frozenset[int]] = (),
) -> list[Group]:
    """The groups of the whole model. stages: layers of each pipeline stage. Raises CannotGroupError."""
    if disable_hybrid:
        specs = _unify_hybrid(specs, rules, promoted_merge=promoted_merge)
    if not specs:
        return []
    if are_mergeable(list(specs.values())):
        return [group_of(specs, list(specs))]
    if are_uniform(list(specs.values())):
        return [group_of(specs, list(specs), uniform_type=True)]
    if not rules.packed_blocks and any(spec.kind is SpecKind.SLIDING_MLA for spec in specs.values()):
        return side_by_side.tuple_groups(specs, rules)
    if rules.ring_in_keys and side_by_side.are_pooled(specs):
        return side_by_side.pooled_groups(specs, stages)
    packed = side_by_side.packed_groups(specs) if block_outermost and rules.packed_blocks else None
    if packed:
        return packed
    unified = _unify_pages(specs, rules)
    if unified is None:
        fallback = _full_allocation(specs, rules) if rules.full_fallback else None
        if fallback is None:
            raise CannotGroupError("the page sizes of the layers cannot be made equal")
        return fallback
    return _uniform_page_groups(unified, rules)


def _unify_hybrid(specs: Specs, rules: Rules, *, promoted_merge: bool) -> Specs:
    """disable_hybrid_kv_cache_manager: windows and chunks are allocated like full attention."""
    promoted = dict(specs)
    for sharded in (True, False):
        # Only attention layers can be replicated over context parallelism; states stay with the rest.
        part = {
            layer: spec
            for layer, spec in specs.items()
            if (spec.kind is SpecKind.MAMBA or spec.dcp_sharded) is sharded
        }
        if part:
            promoted.update(_promote(part, rules, promoted_merge=promoted_merge))
    return promoted


def _promote(specs: Specs, rules: Rules, *, promoted_merge: bool = True) -> Specs:
    """_promote_local_kv_cache_specs. Raises CannotGroupError."""
    listed = list(specs.values())
    if are_mergeable(listed) or are_uniform(listed):
        return specs
    promoted = dict(specs)
    has_full = any(spec.kind in FULL_KINDS for spec in listed)
    if has_full and any(spec.kind in LOCAL_KINDS for spec in listed):
        sizes = {spec.block_size for spec in listed if spec.kind in FULL_KINDS}
        for layer, spec in specs.items():
            if spec.kind in LOCAL_KINDS:
                one = len(sizes) == 1 and rules.promoted_blocks
                whole = one or spec.kind is SpecKind.SLIDING_MLA
                full = _as_full(spec, next(iter(sizes)) if whole else spec.block_size, rules)
                promoted[layer] = replace(full, promoted=not promoted_merge)
    windows = {spec.kept_window for spec in promoted.values() if spec.kept_window is not None}
    listed = list(promoted.values())
    if not (are_mergeable(listed) or are_uniform(listed)) or (len(windows) > 1 and _are_full(listed)):
        raise CannotGroupError("Failed to promote local KV cache specs to one unified type.")
    return promoted


def _are_full(specs: list[Spec]) -> bool:
    """FullAttentionSpec.merge looks at the windows before it looks at the shapes."""
    return all(spec.kind is SpecKind.FULL for spec in specs)


def _as_full(spec: Spec, block_size: int, rules: Rules) -> Spec:
    latent = spec.kind is SpecKind.SLIDING_MLA
    if latent and not rules.promotes_latents:
        # bounded_replay is passed to MLAAttentionSpec, which does not have it (v1/core/kv_cache_utils.py).
        raise CannotGroupError("windows over latents cannot be allocated like full attention")
    padded = spec.padded
    if padded is not None:
        padded = max(padded, spec.real_page_bytes * block_size // spec.block_size)
    kind, kept = (SpecKind.MLA, None) if latent else (SpecKind.FULL, spec.window)
    return replace(spec, kind=kind, block_size=block_size, padded=padded, window=None, kept_window=kept)


def _unify_pages(specs: Specs, rules: Rules) -> Specs | None:
    """unify_kv_cache_spec_page_size; None where vLLM raises NotImplementedError."""
    largest = max(spec.page_bytes for spec in specs.values())
    unified: Specs = {}
    for layer, spec in specs.items():
        page = spec.page_bytes
        if page == largest:
            unified[layer] = spec
        elif spec.kind is SpecKind.MAMBA:
            if not rules.pads_states:
                return None
            unified[layer] = replace(spec, padded=largest)
        elif largest % page == 0 and spec.padded is None:
            unified[layer] = spec.with_block_size(spec.block_size * (largest // page))
        elif spec.strided and (
            rules.pads == "attention" or (rules.pads != "none" and spec.kind is not SpecKind.MLA)
        ):
            unified[layer] = replace(spec, padded=largest)
        else:
            return None
    return unified


def _full_allocation(specs: Specs, rules: Rules) -> list[Group] | None:
    """_try_get_full_allocation_fallback_groups: MLA beside windows whose pages do not fit."""
    kinds = {spec.kind for spec in specs.values()}
    if kinds & {SpecKind.SLIDING_MLA, SpecKind.CHUNKED} or not {SpecKind.MLA, SpecKind.SLIDING} <= kinds:
        return None
    try:
        promoted = _promote(specs, rules)
    except CannotGroupError:
        return None
    if not are_uniform(list(promoted.values())):
        return None
    return [group_of(promoted, list(promoted), uniform_type=True)]


def _uniform_page_groups(specs: Specs, rules: Rules) -> list[Group]:
    """_get_kv_cache_groups_uniform_page_size: as many layers a group as the rarest type has."""
    same: dict[Spec, list[int]] = {}
    for layer, spec in specs.items():
        same.setdefault(spec, []).append(layer)
    buckets: list[tuple[list[int], list[Spec]]] = []
    for spec, layers in same.items():
        for names, members in buckets:
            if rules.merged_kinds and members[0].kind is spec.kind and are_mergeable([*members, spec]):
                names.extend(layers)
                members.append(spec)
                break
        else:
            buckets.append((list(layers), [spec]))
    counts = [len(names) for names, _ in buckets]
    group_size = min(counts)
    # 12 windowed and 13 full layers make two groups of 13, not three of 12.
    if 100 * max(counts) < (100 + rules.group_slack_percent) * group_size:
        group_size = max(counts)
    groups = []
    for names, _ in buckets:
        parts = ceil_div(len(names), group_size)
        if rules.slices:
            groups += [
                group_of(specs, names[at : at + group_size]) for at in range(0, len(names), group_size)
            ]
        else:
            groups += [group_of(specs, names[part::parts]) for part in range(parts)]
    return sorted(groups, key=lambda group: ORDER[group.first.kind]) if rules.slices else groups
