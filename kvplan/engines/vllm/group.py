"""What a group is: layers with one block table, and which layers' specs are alike.

vllm-project/vllm 0.32 vllm/v1/kv_cache_interface.py (KVCacheGroupSpec, UniformTypeKVCacheSpecs) and
v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import lcm

from kvplan.engines.vllm.specs import FULL_KINDS, SLIDING_KINDS, Spec, SpecKind
from kvplan.engines.vllm.versions import Rules
from kvplan.record import record
from kvplan.units import round_up

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
        return sum(spec.page_bytes for spec in self.specs)


def block_bytes(groups: Sequence[Group], rules: Rules) -> int:
    """One block of the pool: the group with most bytes, or what `Rules.latent_blocks` says."""
    largest = max((group.bytes_per_block for group in groups), default=0)
    largest = round_up(largest, lcm(*(spec.stride for group in groups for spec in group.specs)))
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


def are_mergeable(specs: list[Spec]) -> bool:
    """merge() of the first spec's class accepts them all."""
    first = specs[0]
    if first.kind in (SpecKind.FULL, SpecKind.MLA):
        if any(spec.kind is not first.kind or spec.attention != first.attention for spec in specs):
            return False
        return len({spec.kept_window for spec in specs if spec.kept_window is not None}) <= 1
    return all(spec == first for spec in specs)


def are_uniform(specs: list[Spec]) -> bool:
    """UniformTypeKVCacheSpecs.is_uniform_type: the same number of token slots in every layer."""
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
