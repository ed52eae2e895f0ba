"""Gated delta net (Qwen3-Next, Qwen3.5, OLMo-hybrid) and Kimi delta attention (KDA)."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Grows, Term


@record()
class GatedDeltaNet(Family):
    """conv over q, k, v: (2 * num_k_heads * k_head_dim + num_v_heads * v_head_dim) * (conv_kernel - 1);
    state: num_v_heads * k_head_dim * v_head_dim."""

    num_k_heads: int
    num_v_heads: int
    k_head_dim: int
    v_head_dim: int
    conv_kernel: int
    ssm_dtype: str | None = None

    family: ClassVar[str] = "gated_delta_net"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = (
        "(2 · num_k_heads · k_head_dim + num_v_heads · v_head_dim) · (conv_kernel − 1) · conv element"
        " + num_v_heads · k_head_dim · v_head_dim · state element"
    )
    source: ClassVar[str] = "Yang et al., Gated Delta Networks (arXiv 2412.06464)"

    @property
    def state_dtype(self) -> str | None:
        return self.ssm_dtype

    def terms(self, store: Storage) -> tuple[Term, ...]:
        k_heads, v_heads = (
            Factor("num_k_heads", self.num_k_heads, True),
            Factor("num_v_heads", self.num_v_heads, True),
        )
        k_dim, v_dim = Factor("k_head_dim", self.k_head_dim), Factor("v_head_dim", self.v_head_dim)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        return (
            Term(
                "conv_state_qk",
                (Factor("q_and_k", 2), k_heads, k_dim, columns),
                store.conv_state,
                Grows.REQUEST,
            ),
            Term("conv_state_v", (v_heads, v_dim, columns), store.conv_state, Grows.REQUEST),
            Term("delta_state", (v_heads, k_dim, v_dim), store.recurrent_state, Grows.REQUEST),
        )


@record()
class KimiDeltaAttention(Family):
    """conv of q, k, v: 3 * num_heads * head_dim * (conv_kernel - 1); state: num_heads * head_dim**2, fp32."""

    num_heads: int
    head_dim: int
    conv_kernel: int

    family: ClassVar[str] = "kda"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = (
        "3 · num_heads · head_dim · (conv_kernel − 1) · conv element + num_heads · head_dim² · state element"
    )
    source: ClassVar[str] = "Kimi Linear (arXiv 2510.26692)"

    @property
    def state_dtype(self) -> str | None:
        return "float32"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        heads, width = Factor("num_heads", self.num_heads, sharded=True), Factor("head_dim", self.head_dim)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        return (
            Term(
                "conv_state_qkv", (Factor("q_k_v", 3), heads, width, columns), store.conv_state, Grows.REQUEST
            ),
            Term(
                "delta_state",
                (heads, width, Factor("head_dim", self.head_dim)),
                store.recurrent_state,
                Grows.REQUEST,
            ),
        )
