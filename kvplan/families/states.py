"""Layers that keep a state of a fixed size for each request: linear attention, convolutions, Mamba, the delta
rule, recurrences.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from kvplan.dtypes import FLOAT32
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = "hidden_size · (conv_kernel − 1) · conv element"
    source: ClassVar[str] = "LiquidAI LFM2; huggingface/transformers models/lfm2"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        hidden = Factor("hidden_size", self.hidden_size, sharded=True)
        columns = Factor("conv_columns", self.conv_kernel - store.conv_columns_less)
        return (Term("conv_state", (hidden, columns), store.conv_state, Grows.REQUEST),)


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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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


@record()
class RgLru(Family):
    """conv: lru_width * (conv1d_width - 1); recurrent: lru_width, fp32."""

    lru_width: int
    conv1d_width: int

    family: ClassVar[str] = "rg_lru"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
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
