"""Full attention: MHA, GQA and MQA, with K and V of equal or different width."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage, kv_terms
from kvplan.record import record
from kvplan.terms import Term


@record()
class FullAttention(Family):
    """K and V of every token.

    bytes per token = num_kv_heads * (head_dim + v_head_dim) * element size. ``broadcast_heads``: the
    transformers class repeats K and V to this many heads before it caches them (Falcon's new decoder
    architecture, transformers models/falcon/modeling_falcon.py). ``library_window``: transformers' cache
    keeps a window because the config has a stray ``sliding_window``, which the model itself never reads
    (cache_utils.py, get_layer_types_and_kwargs).
    """

    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    broadcast_heads: int | None = None
    library_window: int | None = None

    family: ClassVar[str] = "full_attention"
    kind: ClassVar[Kind] = Kind.FULL
    formula: ClassVar[str] = "tokens · num_kv_heads · (head_dim + v_head_dim) · element"
    source: ClassVar[str] = "Ainslie et al., GQA (arXiv 2305.13245); Shazeer, MQA (arXiv 1911.02150)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.v_head_dim or self.head_dim)
