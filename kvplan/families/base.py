"""The interface of an attention family, and an engine's choices of storage for it."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Protocol

from kvplan.dtypes import BFLOAT16, FLOAT32, KV_DTYPES, KvDtype, Packing
from kvplan.record import KeptHash, record
from kvplan.terms import Factor, Grows, Part, Term


class Kind(str, Enum):
    """How an allocator has to treat the part, whatever its terms are."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    MLA = "mla"
    INDEXER = "indexer"
    COMPRESSED = "compressed"
    STATE = "state"
    CROSS = "cross"
    NONE = "none"


@record()
class Storage(KeptHash):
    """An engine's choices of storage; everything else follows from the model."""

    kv: KvDtype = KV_DTYPES["bfloat16"]
    """format of K, V and latents"""
    dtype: Packing = BFLOAT16
    """the model's element type"""
    conv_state: Packing = BFLOAT16
    """conv_state, recurrent_state: element types of state-space layers"""
    recurrent_state: Packing = FLOAT32
    index_key: KvDtype = KV_DTYPES["fp8_per_token_head"]
    """format of sparse-attention index keys"""
    conv_columns_less: int = 1
    """how many of the kernel's columns a conv state leaves out (1: kernel - 1)"""
    window_less: int = 0
    """how many tokens of a window are not kept (1: the newest is in flight)"""


class LayerPart(Protocol):
    """One cache-bearing part of a layer; a family is a frozen dataclass with these members.

    library_state: the element type in which the transformers class keeps a recurrent state
    ("float32", or "model" for the model's own dtype); state_dtype: the one that the config names.
    """

    family: ClassVar[str]
    kind: ClassVar[Kind]
    formula: ClassVar[str]
    source: ClassVar[str]
    library_state: ClassVar[str]
    borrows: ClassVar[bool]

    @property
    def state_dtype(self) -> str | None: ...

    @property
    def key_width(self) -> int: ...

    @property
    def value_width(self) -> int: ...

    @property
    def window(self) -> int | None: ...

    @property
    def span(self) -> int | None: ...

    def terms(self, store: Storage) -> tuple[Term, ...]: ...


@record()
class Family(KeptHash):
    """Shared defaults of the families."""

    family: ClassVar[str] = ""
    kind: ClassVar[Kind] = Kind.NONE
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    library_state: ClassVar[str] = "float32"
    borrows: ClassVar[bool] = False
    """It reads the cache of an earlier layer."""

    @property
    def state_dtype(self) -> str | None:
        """The element type that the config names for a recurrent state, if it names one."""
        return None

    @property
    def key_width(self) -> int:
        """Numbers of one head's K, of a latent with its rope key; 0 of what is no attention."""
        return 0

    @property
    def value_width(self) -> int:
        """Numbers of one head's V; of a latent, which serves as both, its own."""
        return self.key_width

    @property
    def window(self) -> int | None:
        """The newest tokens that it keeps one by one, of a window or a chunk; None: all."""
        return None

    @property
    def span(self) -> int | None:
        """Keys that one query sees at most; None: all."""
        return self.window

    def terms(self, store: Storage) -> tuple[Term, ...]:
        """The terms of one layer under this storage; every family has its own."""
        raise NotImplementedError


def kept_tokens(store: Storage, window: int) -> int:
    """How many of the newest tokens a window keeps."""
    return max(0, window - store.window_less)


def kv_terms(
    store: Storage,
    num_kv_heads: int,
    head_dim: int,
    v_head_dim: int,
    *,
    grows: Grows = Grows.TOKEN,
    keep_last: int | None = None,
) -> tuple[Term, ...]:
    """K and V: num_kv_heads * head_dim and num_kv_heads * v_head_dim numbers per token."""
    k_packing, v_packing = store.kv.key_packing(head_dim), store.kv.value_packing(v_head_dim)
    heads = Factor("num_kv_heads", num_kv_heads, sharded=True)
    k_factors, v_factors = (heads, Factor("head_dim", head_dim)), (heads, Factor("v_head_dim", v_head_dim))
    residual = store.kv.residual
    if not residual or grows is not Grows.TOKEN or keep_last is not None:
        return (
            Term("k", k_factors, k_packing, grows, keep_last),
            Term("v", v_factors, v_packing, grows, keep_last),
        )
    # KIVI: K is quantised a whole residual at a time (per channel), V token by token once it is older.
    return (
        Term("k", (Factor("residual_tokens", residual), *k_factors), k_packing, stride=residual),
        Term("k_waiting", k_factors, store.dtype, stride=residual, part=Part.WAITING),
        Term("v", v_factors, v_packing, skip_last=residual),
        Term("v_newest", v_factors, store.dtype, keep_last=residual),
    )
