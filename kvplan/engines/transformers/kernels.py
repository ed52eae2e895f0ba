"""transformers' own allocators over pages of a pool: its write and read indices, its index_copy and
index_select. Called where transformers is installed; they run on a CPU as on a GPU.

Source: huggingface/transformers 5.24.0 src/transformers/generation/continuous_batching/cache_allocators/
{full_attention,sliding_attention}.py, as PagedAttentionCache.update calls them.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

from kvplan.engines.tensors.base import Group, Layout, View
from kvplan.engines.transformers.versions import rules_of

NAME = "transformers.paged_cache"
ON_CPU = True
_REQUEST = "kvplan"


def are_here() -> bool:
    """Whether a transformers with these allocators is installed beside kvplan."""
    try:
        return rules_of(version("transformers")).sectors
    except PackageNotFoundError:
        return False


def takes(layout: Layout) -> bool:
    """Whether the layout is that of continuous batching: one flat tensor."""
    return len(layout.allocations) == 1 and layout.allocations[0].name == "cache"


class Pages:
    """The library's allocator of one kind of layers, bound to a pool's bytes, with one request in it.

    view: keys of the layer that is written; blocks: the request's, by the layout's numbers.
    """

    def __init__(self, raw: Any, view: View, group: Group, dtype: Any, blocks: list[int]) -> None:
        from transformers.generation.continuous_batching import cache_allocators as library

        page = view.block_stride // group.layers
        shift, place = divmod(view.offset, view.block_stride)
        config = SimpleNamespace(
            head_dim=view.content // dtype.itemsize,
            num_attention_heads=view.heads,
            sliding_window=group.window,
        )
        kind = (
            library.FullAttentionCacheAllocator
            if group.window is None
            else library.SlidingAttentionCacheAllocator
        )
        self.layer = place // page
        self.own = kind(
            index=0,
            config=config,
            num_key_value_heads=view.heads,
            cache_dtype=dtype,
            page_size=view.states,
            layer_indices=list(range(group.layers)),
            allow_block_sharing=False,
        )
        sectors = int(raw.numel()) // view.block_stride - 2
        self.own.register_cache_tensor(
            view.block_stride, sectors * view.block_stride, raw, library.CachePool(sectors, 1)
        )
        self.own.block_table[_REQUEST] = [shift + block for block in blocks]

    def write(self, keys: Any, values: Any, *, past: int) -> None:
        """[tokens, heads, width] of the positions from ``past`` on."""
        index = self._indices(self.own.get_write_indices(_REQUEST, past, int(keys.shape[0])), keys)
        self.own.update(keys, values, self.layer, index[:0], index)

    def read(self, keys: Any, values: Any, *, tokens: int) -> tuple[Any, Any]:
        """Attention's input at the last of ``tokens`` tokens, whose own keys and values ([1, heads, width])
        come with it."""
        past = tokens - 1
        wanted = self._indices(self.own.get_read_indices(_REQUEST, past, 1), keys)
        own = self._indices(self.own.get_write_indices(_REQUEST, past, 1), keys)
        found: tuple[Any, Any] = self.own.update(keys, values, self.layer, wanted, own)
        return found

    def _indices(self, values: list[int], like: Any) -> Any:
        return like.new_zeros(0).long().new_tensor(values)
