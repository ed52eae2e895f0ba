"""Linear attention with one state matrix per head, and short convolutions."""

from __future__ import annotations

from typing import ClassVar

from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Grows, Term


@record()
class LightningAttention(Family):
    """num_heads * head_dim**2 numbers per request, in the model's dtype in transformers (models/minimax)."""

    num_heads: int
    head_dim: int
    linear_dtype: str | None = None

    family: ClassVar[str] = "lightning_attention"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "num_heads · head_dim² · state element"
    source: ClassVar[str] = (
        "MiniMax-01 (arXiv 2501.08313); Qin et al., Lightning Attention-2 (arXiv 2401.04658)"
    )
    library_state: ClassVar[str] = "model"

    @property
    def state_dtype(self) -> str | None:
        return self.linear_dtype

    def terms(self, store: Storage) -> tuple[Term, ...]:
        width = Factor("head_dim", self.head_dim)
        factors = (Factor("num_heads", self.num_heads, sharded=True), width, width)
        return (Term("linear_state", factors, store.recurrent_state, Grows.REQUEST),)


@record()
class ShortConvolution(Family):
    """hidden_size * (conv_kernel - 1) numbers per request (LFM2); transformers keeps all columns."""

    hidden_size: int
    conv_kernel: int

    family: ClassVar[str] = "short_convolution"
    kind: ClassVar[Kind] = Kind.STATE
    formula: ClassVar[str] = "hidden_size · (conv_kernel − 1) · conv element"
    source: ClassVar[str] = "LiquidAI LFM2; huggingface/transformers models/lfm2"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        hidden = Factor("hidden_size", self.hidden_size, sharded=True)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        return (Term("conv_state", (hidden, columns), store.conv_state, Grows.REQUEST),)
