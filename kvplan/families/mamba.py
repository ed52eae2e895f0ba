"""Mamba-1 and Mamba-2: a convolution state and a recurrent state per request."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Grows, Term


@record()
class Mamba1(Family):
    """conv: d_inner * (conv_kernel - 1) in the model's dtype; ssm: d_inner * state_size.

    transformers keeps all conv_kernel columns and the ssm state in fp32.
    """

    d_inner: int
    state_size: int
    conv_kernel: int
    ssm_dtype: str | None = None

    family: ClassVar[str] = "mamba1"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = (
        "d_inner · (conv_kernel − 1) · conv element + d_inner · state_size · state element"
    )
    source: ClassVar[str] = "Gu & Dao, Mamba (arXiv 2312.00752)"

    @property
    def state_dtype(self) -> str | None:
        return self.ssm_dtype

    def terms(self, store: Storage) -> tuple[Term, ...]:
        inner = Factor("d_inner", self.d_inner, sharded=True)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        state = Factor("state_size", self.state_size)
        return (
            Term("conv_state", (inner, columns), store.conv_state, Grows.REQUEST),
            Term("ssm_state", (inner, state), store.recurrent_state, Grows.REQUEST),
        )


@record()
class Mamba2(Family):
    """conv: (num_heads * head_dim + 2 * n_groups * state_size) * (conv_kernel - 1);
    ssm: num_heads * head_dim * state_size.

    The conv state of x and of B and C are separate terms because tensor parallelism divides heads and
    groups separately (vllm-project/vllm model_executor/layers/mamba/mamba_utils.py).
    """

    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    ssm_dtype: str | None = None

    family: ClassVar[str] = "mamba2"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = (
        "(num_heads · head_dim + 2 · n_groups · state_size) · (conv_kernel − 1) · conv element"
        " + num_heads · head_dim · state_size · state element"
    )
    source: ClassVar[str] = "Dao & Gu, Mamba-2 (arXiv 2405.21060)"

    @property
    def state_dtype(self) -> str | None:
        return self.ssm_dtype

    def terms(self, store: Storage) -> tuple[Term, ...]:
        heads, width = Factor("num_heads", self.num_heads, sharded=True), Factor("head_dim", self.head_dim)
        groups = Factor("n_groups", self.n_groups, sharded=True)
        state = Factor("state_size", self.state_size)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        return (
            Term("conv_state_x", (heads, width, columns), store.conv_state, Grows.REQUEST),
            Term(
                "conv_state_bc",
                (Factor("b_and_c", 2), groups, state, columns),
                store.conv_state,
                Grows.REQUEST,
            ),
            Term("ssm_state", (heads, width, state), store.recurrent_state, Grows.REQUEST),
        )
