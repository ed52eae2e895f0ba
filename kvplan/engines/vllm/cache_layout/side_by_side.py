"""Groups whose pages of several sizes lie side by side in one block.

vllm-project/vllm vllm/v1/core/kv_cache_utils.py: _get_packed_kv_cache_groups (since 0.29),
_get_kv_cache_groups_uniform_groups (before, of DeepSeek-V4) and _get_kv_cache_groups_glm5_next (0.30, 0.31).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from kvplan.engines.vllm.cache_layout.grouping import CannotGroupError, Group, Specs, are_uniform, group_of
from kvplan.engines.vllm.cache_layout.specs import SLIDING_KINDS, SpecKind
from kvplan.engines.vllm.versions import Rules
from kvplan.record import record, replace
from kvplan.units import ceil_div


@record(eq=False)
class _Bucket:
    specs: Specs
    by_page: dict[int, list[int]]

    @property
    def balanced(self) -> bool:
        return len({len(layers) for layers in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(layers) for layers in self.by_page.values())

    def widest(self, parts: int) -> int:
        return sum(ceil_div(len(layers), parts) * page for page, layers in self.by_page.items())


def packed_groups(specs: Specs) -> list[Group] | None:
    """_get_packed_kv_cache_groups: pages of several sizes lie side by side in one block."""
    if len({spec.page_bytes for spec in specs.values()}) <= 1:
        return None
    buckets = [_bucket(specs, layers) for layers in _greedy_buckets(specs)]
    floor = max((b.repeats for b in buckets if b.balanced and len(b.by_page) > 1), default=0)
    repeats = _approximate_gcd([b.repeats for b in buckets if b.balanced], floor) if floor else None

    def parts_of(bucket: _Bucket) -> int:
        return ceil_div(bucket.repeats, repeats) if bucket.balanced and repeats is not None else 1

    def is_state(bucket: _Bucket) -> bool:
        kind = next(iter(bucket.specs.values())).kind
        return kind in (SpecKind.MAMBA, SpecKind.RING) or (repeats is None and kind in SLIDING_KINDS)

    anchor = max(b.widest(len(b.specs) if is_state(b) else parts_of(b)) for b in buckets)
    groups: list[Group] = []
    for bucket in buckets:
        parts = parts_of(bucket)
        if anchor and is_state(bucket):
            per_block = max(anchor // next(iter(bucket.specs.values())).page_bytes, 1)
            parts = max(parts, ceil_div(len(bucket.specs), per_block))
        if parts == 1:
            groups.append(group_of(specs, list(bucket.specs), uniform_type=True))
            continue
        groups += _dealt(bucket, parts)
    return groups


def _dealt(bucket: _Bucket, parts: int) -> list[Group]:
    """Its layers, one of every page size at a time, in so many groups by turns."""
    pattern = list(zip(*bucket.by_page.values(), strict=False))
    dealt = ([layer for repeat in pattern[part::parts] for layer in repeat] for part in range(parts))
    return [group_of(bucket.specs, layers, uniform_type=True) for layers in dealt]


def _greedy_buckets(specs: Specs) -> list[list[int]]:
    buckets: list[list[int]] = []
    for layer, spec in specs.items():
        for bucket in buckets:
            # Uniformity is asked of the bucket's first layer, so comparing with it is comparing with all.
            if are_uniform([specs[bucket[0]], spec]):
                bucket.append(layer)
                break
        else:
            buckets.append([layer])
    return buckets


def _bucket(specs: Specs, layers: list[int]) -> _Bucket:
    by_page: dict[int, list[int]] = {}
    for layer in layers:
        by_page.setdefault(specs[layer].page_bytes, []).append(layer)
    return _Bucket({layer: specs[layer] for layer in layers}, by_page)


def _approximate_gcd(values: list[int], lowest: int) -> int:
    """The chunk in lowest … max(values) to which rounding the values up adds least; the larger of equals."""
    first, last = max(1, lowest), max(values)
    if first > last:
        return first
    return min(range(first, last + 1), key=lambda chunk: (sum(-value % chunk for value in values), -chunk))


def _of_kind(specs: Specs, kind: SpecKind) -> Specs:
    return {layer: spec for layer, spec in specs.items() if spec.kind is kind}


def _padded(specs: Specs, page: int) -> Specs:
    return {layer: replace(spec, padded=page) for layer, spec in specs.items()}


def tuple_groups(specs: Specs, rules: Rules) -> list[Group]:
    """Before 0.29, DeepSeek-V4: the full latents in one group, of each window as many layers (of every page
    size) as leave least unused beside them (_get_kv_cache_groups_uniform_groups)."""
    full = _of_kind(specs, SpecKind.MLA)
    if not full or not are_uniform(list(full.values())):
        raise CannotGroupError("windows over latents need full latents of one block size beside them")
    windows: dict[tuple[int, int | None], Specs] = {}
    for layer, spec in specs.items():
        if spec.kind is SpecKind.SLIDING_MLA:
            windows.setdefault((spec.block_size, spec.window), {})[layer] = spec
    buckets = [_bucket(part, list(part)) for part in (full, *windows.values())]
    size = _approximate_gcd([bucket.repeats for bucket in buckets], buckets[0].repeats)
    groups = [group_of(full, list(full), uniform_type=True)]
    for part in windows.values():
        if rules.latent_blocks != "largest":
            part = _in_pages(part, sorted({spec.page_bytes for spec in full.values()}))
        bucket = _bucket(part, list(part))
        if not bucket.balanced:
            raise CannotGroupError("a window's layers have pages of several sizes, not as many of each")
        groups += _dealt(bucket, ceil_div(bucket.repeats, size))
    return groups


def _in_pages(window: Specs, pages: list[int]) -> Specs:
    """Each layer in the least page of the full latents that holds it."""
    if any(spec.page_bytes > pages[-1] for spec in window.values()):
        raise CannotGroupError("a window's page is larger than every page of the full latents")
    return {
        layer: replace(spec, padded=next(page for page in pages if page >= spec.page_bytes))
        for layer, spec in window.items()
    }


def are_pooled(specs: Specs) -> bool:
    """Latents with pooled index keys, beside states."""
    kinds = {spec.kind for spec in specs.values()}
    pooled = any(spec.kind is SpecKind.MLA and spec.tokens_per_state > 1 for spec in specs.values())
    return pooled and SpecKind.MAMBA in kinds and kinds <= {SpecKind.MAMBA, SpecKind.RING, SpecKind.MLA}


def pooled_groups(specs: Specs, stages: Sequence[frozenset[int]]) -> list[Group]:
    """Before 0.32, GLM-5.3-Flash: latents and pooled keys in one group, the rings in pages of the keys, and
    of the states no more in a group than a stage has latents, in pages of these; blocks side by side,
    whatever rows the kernel reads (_get_kv_cache_groups_glm5_next, _glm5_next_tensor_layout)."""
    states, rings = _of_kind(specs, SpecKind.MAMBA), _of_kind(specs, SpecKind.RING)
    others = {layer: spec for layer, spec in specs.items() if not (layer in states or layer in rings)}
    kept = {layer: replace(spec, stride=1) for layer, spec in others.items()}
    latents = {layer for layer, spec in kept.items() if spec.tokens_per_state == 1}
    pages = {kept[layer].page_bytes for layer in latents}
    key_pages = {spec.page_bytes for layer, spec in kept.items() if layer not in latents}
    if len(pages) != 1 or len(key_pages) != 1:
        raise CannotGroupError("the latents or their index keys have pages of several sizes")
    page, keys = min(pages), min(key_pages)
    if any(spec.real_page_bytes > page for spec in states.values()):
        raise CannotGroupError("the states' pages do not fit those of the latents")
    padded, parts = _padded(states, page), _groups_of_states(states.keys(), latents, stages)
    found = [group_of(part, list(part), uniform_type=True) for part in (kept, _padded(rings, keys)) if part]
    return found + [group_of(padded, list(padded)[part::parts]) for part in range(parts)]


def _groups_of_states(states: Set[int], latents: Set[int], stages: Sequence[frozenset[int]]) -> int:
    parts = ceil_div(len(states), len(latents))
    for stage in stages:
        held, shared = len(stage & states), len(stage & latents)
        if held and not shared:
            raise CannotGroupError("a pipeline stage has states and no latents to share pages with")
        parts = max(parts, ceil_div(held, shared) if held else 0)
    return parts
