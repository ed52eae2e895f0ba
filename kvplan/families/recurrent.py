"""Recurrent layers: RG-LRU (Griffin), RWKV 4 to 7, xLSTM."""

from __future__ import annotations

from typing import ClassVar

from kvplan.dtypes import FLOAT32
from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Grows, Term


@record()
class RgLru(Family):
    """conv: lru_width * (conv1d_width - 1); recurrent: lru_width, fp32."""

    lru_width: int
    conv1d_width: int

    family: ClassVar[str] = "rg_lru"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "lru_width · (conv1d_width − 1) · conv element + lru_width · 4 B"
    source: ClassVar[str] = "De et al., Griffin (arXiv 2402.19427)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        width = Factor("lru_width", self.lru_width, sharded=True)
        return (
            Term(
                "conv_state",
                (width, Factor("conv_columns", self.conv1d_width - 1)),
                store.conv_state,
                Grows.REQUEST,
            ),
            Term("rg_lru_state", (width,), store.recurrent_state, Grows.REQUEST),
        )


@record()
class Rwkv4(Family):
    """2 * hidden_size in the model's dtype (token shift) and 3 * attention_hidden_size in fp32."""

    hidden_size: int
    attention_hidden_size: int

    family: ClassVar[str] = "rwkv4"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "2 · hidden_size · element + 3 · attention_hidden_size · 4 B"
    source: ClassVar[str] = "Peng et al., RWKV (arXiv 2305.13048); huggingface/transformers models/rwkv"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        shift = (Factor("token_shifts", 2), Factor("hidden_size", self.hidden_size))
        state = (
            Factor("num_den_max", 3),
            Factor("attention_hidden_size", self.attention_hidden_size, sharded=True),
        )
        return (
            Term("shift_state", shift, store.dtype, Grows.REQUEST),
            Term("wkv_state", state, FLOAT32, Grows.REQUEST),
        )


@record()
class Rwkv5(Family):
    """RWKV 5, 6 and 7: token_shifts * hidden_size (token shift) and num_heads * head_dim**2 in fp32.

    token_shifts is 2 (time mix and channel mix); 1 where an ordinary MLP stands for the channel mix
    (llama.cpp's rwkv6qwen2 and arwkv7).
    """

    hidden_size: int
    num_heads: int
    head_dim: int
    token_shifts: int = 2

    family: ClassVar[str] = "rwkv5"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "token_shifts · hidden_size · element + num_heads · head_dim² · 4 B"
    source: ClassVar[str] = "Peng et al., Eagle and Finch (arXiv 2404.05892)"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        shift = (Factor("token_shifts", self.token_shifts), Factor("hidden_size", self.hidden_size))
        width = Factor("head_dim", self.head_dim)
        state = (Factor("num_heads", self.num_heads, sharded=True), width, width)
        return (
            Term("shift_state", shift, store.dtype, Grows.REQUEST),
            Term("wkv_state", state, FLOAT32, Grows.REQUEST),
        )


@record()
class XLstm(Family):
    """num_heads * (qk_head_dim * v_head_dim + qk_head_dim + 1) numbers: memory, normaliser, maximum."""

    num_heads: int
    qk_head_dim: int
    v_head_dim: int

    family: ClassVar[str] = "xlstm"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "num_heads · (qk_head_dim · v_head_dim + qk_head_dim + 1) · state element"
    source: ClassVar[str] = "Beck et al., xLSTM (arXiv 2405.04517); huggingface/transformers models/xlstm"
    library_state: ClassVar[str] = "model"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        heads = Factor("num_heads", self.num_heads, sharded=True)
        qk = Factor("qk_head_dim", self.qk_head_dim)
        state = store.recurrent_state
        return (
            Term("memory", (heads, qk, Factor("v_head_dim", self.v_head_dim)), state, Grows.REQUEST),
            Term("normaliser", (heads, qk), state, Grows.REQUEST),
            Term("stabiliser", (heads,), state, Grows.REQUEST),
        )
