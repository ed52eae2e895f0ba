"""Small extras that some transformers classes keep beside, or instead of, K and V."""

from __future__ import annotations

from typing import ClassVar, Literal

from kvplan.dtypes import BFLOAT16, FLOAT32, INT64
from kvplan.families.base import Family, Kind, Storage
from kvplan.record import record
from kvplan.terms import Factor, Grows, Term


@record()
class KvConvolution(Family):
    """Short convolutions over K, V and two hidden streams (Inkling), fp32.

    (2 * num_kv_heads * head_dim + 2 * hidden_size) * conv_kernel numbers per request.
    """

    num_kv_heads: int
    head_dim: int
    hidden_size: int
    conv_kernel: int

    family: ClassVar[str] = "kv_convolution"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = "(2 · num_kv_heads · head_dim + 2 · hidden_size) · conv_kernel · 4 B"
    source: ClassVar[str] = "huggingface/transformers models/inkling"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        two, columns = Factor("two", 2), Factor("conv_kernel", self.conv_kernel)
        heads, width = (
            Factor("num_kv_heads", self.num_kv_heads, sharded=True),
            Factor("head_dim", self.head_dim),
        )
        return (
            Term("kv_conv_state", (two, heads, width, columns), FLOAT32, Grows.REQUEST),
            Term(
                "hidden_conv_state",
                (two, Factor("hidden_size", self.hidden_size), columns),
                FLOAT32,
                Grows.REQUEST,
            ),
        )


@record()
class WindowedConvolution(Family):
    """The same convolutions in pages: what the newest ``conv_kernel`` tokens put into them, in 16 bit.

    A KV head's K and V and its share of two hidden streams lie side by side, filled up to a power of two.
    """

    num_kv_heads: int
    head_dim: int
    hidden_size: int
    conv_kernel: int

    family: ClassVar[str] = "windowed_convolution"
    kind: ClassVar[Literal[Kind.SLIDING]] = Kind.SLIDING
    formula: ClassVar[str] = (
        "min(tokens, conv_kernel) · num_kv_heads"
        " · 2^⌈log2(2 · head_dim + 2 · hidden_size / num_kv_heads)⌉ · 2 B"
    )
    source: ClassVar[str] = "vllm-project/vllm 0.33 vllm/models/inkling/nvidia/sconv_swa_attn.py"

    @property
    def packed_width(self) -> int:
        width: int = 2 * self.head_dim + 2 * (self.hidden_size // self.num_kv_heads)
        return 1 << (width - 1).bit_length()

    @property
    def window(self) -> int | None:
        return self.conv_kernel

    def terms(self, store: Storage) -> tuple[Term, ...]:
        factors = (
            Factor("num_kv_heads", self.num_kv_heads, sharded=True),
            Factor("packed_width", self.packed_width),
        )
        return (Term("conv_window", factors, BFLOAT16, keep_last=self.conv_kernel),)


@record()
class CompressedConvolution(Family):
    """Zaya's convolved attention: its conv columns and half a value.

    (num_heads + num_kv_heads) * head_dim * (cca_time0 + cca_time1 - 2) + num_kv_heads * head_dim // 2.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    conv_columns: int

    family: ClassVar[str] = "compressed_convolution"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = (
        "((num_heads + num_kv_heads) · head_dim · conv_columns + num_kv_heads · head_dim / 2) · element"
    )
    source: ClassVar[str] = "huggingface/transformers models/zaya"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        heads = Factor("heads", self.num_heads + self.num_kv_heads, sharded=True)
        columns = Factor("conv_columns", self.conv_columns)
        half = Factor("half_kv_width", self.num_kv_heads * self.head_dim // 2)
        return (
            Term(
                "conv_state", (heads, Factor("head_dim", self.head_dim), columns), store.dtype, Grows.REQUEST
            ),
            Term("value_state", (half,), store.dtype, Grows.REQUEST),
        )


@record()
class PromptTokens(Family):
    """K and V of ``prompt_length`` tokens that the model puts before every request (CPM-Ant)."""

    prompt_length: int
    num_kv_heads: int
    head_dim: int

    family: ClassVar[str] = "prompt_tokens"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = "prompt_length · 2 · num_kv_heads · head_dim · element"
    source: ClassVar[str] = "huggingface/transformers models/cpmant"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        factors = (
            Factor("prompt_length", self.prompt_length),
            Factor("k_and_v", 2),
            Factor("num_kv_heads", self.num_kv_heads, sharded=True),
            Factor("head_dim", self.head_dim),
        )
        return (Term("prompt_kv", factors, store.kv.key_packing(self.head_dim), Grows.REQUEST),)


@record()
class HiddenMemory(Family):
    """Hidden states of the newest ``mem_len`` tokens (None: all) instead of K and V, always fp32 (XLNet)."""

    hidden_size: int
    mem_len: int | None

    family: ClassVar[str] = "hidden_memory"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = "min(tokens, mem_len) · hidden_size · 4 B"
    source: ClassVar[str] = (
        "Dai et al., Transformer-XL (arXiv 1901.02860); huggingface/transformers models/xlnet"
    )

    @property
    def window(self) -> int | None:
        return self.mem_len

    def terms(self, store: Storage) -> tuple[Term, ...]:
        factors = (Factor("hidden_size", self.hidden_size),)
        return (Term("hidden_memory", factors, FLOAT32, Grows.TOKEN, keep_last=self.mem_len),)


@record()
class NgramEmbedding(Family):
    """The past that a hashed n-gram embedding needs (Qwen4-exp): conv columns and token ids."""

    width: int
    conv_columns: int
    context_tokens: int

    family: ClassVar[str] = "ngram_embedding"
    kind: ClassVar[Literal[Kind.STATE]] = Kind.STATE
    formula: ClassVar[str] = "width · conv_columns · element + context_tokens · 8 B"
    source: ClassVar[str] = "huggingface/transformers models/qwen4_exp"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        conv = (Factor("width", self.width), Factor("conv_columns", self.conv_columns))
        return (
            Term("ngram_conv_state", conv, store.dtype, Grows.REQUEST),
            Term("ngram_context", (Factor("context_tokens", self.context_tokens),), INT64, Grows.REQUEST),
        )
