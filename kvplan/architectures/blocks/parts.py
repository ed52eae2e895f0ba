"""The building blocks of inventories: matrices, norms, attention, perceptrons, experts.

Names are those of the checkpoints; shapes are (outputs, inputs), as torch stores a linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.config.view import ConfigView
from kvplan.record import record
from kvplan.weights.inventory import Dim, Role, Split, Tensor

Tensors = tuple[Tensor, ...]

Dims = Dim | tuple[Dim, ...]

RMS, LAYER = "rms", "layer"


def _dims(dims: Dims) -> tuple[Dim, ...]:
    return (dims,) if isinstance(dims, Dim) else dims


def whole(name: str, value: int) -> Dim:
    """A dimension that every rank has whole."""
    return Dim(name, value)


def keyed(view: ConfigView, key: str) -> Dim:
    """A whole dimension that a config key states."""
    return Dim(key, int(view.integer(key)))


def even(name: str, value: int) -> Dim:
    """A dimension that is divided among the ranks."""
    return Dim(name, value, Split.EVEN)


def vector(name: str, *dims: Dim, dtype: str | None = None) -> Tensors:
    """A tensor that is never quantised: a bias, a norm, a state matrix, a convolution."""
    return (Tensor(name, dims, dtype=dtype),)


def linear(
    name: str,
    out: Dims,
    into: Dims,
    *,
    bias: bool = False,
    role: Role = Role.LINEAR,
    dtype: str | None = None,
    stack: Dims = (),
) -> Tensors:
    """A matrix of outputs × inputs and, beside it, one bias for each output."""
    weight = Tensor(name, _dims(out), _dims(into), _dims(stack), role, dtype)
    if not bias:
        return (weight,)
    own = Role.EXPERT if role is Role.EXPERT else Role.OTHER
    return weight, Tensor(f"{name}.bias", _dims(out), (), _dims(stack), own)


def unquantised(name: str, out: Dims, into: Dims, *, dtype: str | None = None) -> Tensors:
    """A matrix that vLLM builds without a quantisation config; llama.cpp takes it as any other."""
    return linear(name, out, into, role=Role.OTHER, dtype=dtype)


def norm(name: str, *width: Dim, kind: str = RMS, dtype: str | None = None) -> Tensors:
    """A norm's weight, and for ``layer`` its bias; ``none`` has neither."""
    if kind == "none":
        return ()
    weight = vector(name, *width, dtype=dtype)
    return weight + vector(f"{name}.bias", *width, dtype=dtype) if kind == LAYER else weight


def norms(names: Sequence[str], width: Dim, kind: str = RMS) -> Tensors:
    """Several norms of one width."""
    return sum((norm(name, width, kind=kind) for name in names), ())


@record()
class Heads:
    """Query heads, key and value heads, and the widths of a head's query and value."""

    count: int
    kv: int
    width: int
    value_width: int


@record()
class AttentionNames:
    """Module paths of an attention; a fused projection has one name three times."""

    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    value: str = "self_attn.v_proj"
    output: str = "self_attn.o_proj"
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"


SEPARATE = AttentionNames()


def fused(path: str, projection: str, output: str) -> AttentionNames:
    """Names of an attention whose checkpoint has one matrix for query, key and value."""
    joint = f"{path}.{projection}"
    return AttentionNames(joint, joint, joint, f"{path}.{output}", f"{path}.q_norm", f"{path}.k_norm")


def attention(
    heads: Heads,
    hidden: int,
    *,
    names: AttentionNames = SEPARATE,
    qkv_bias: bool = False,
    o_bias: bool = False,
    query_parts: int = 1,
    value: bool = True,
    qk_norm: str = "",
) -> Tensors:
    """Query, key, value and output projections (column, column, column, row parallel).

    query_parts 2: the query projection also makes an output gate. value False: values are the keys
    (one projection less is stored, but vLLM keeps the room: see gemma4). qk_norm: ``head`` one norm for
    all heads, ``full`` one over all heads, kept whole, ``full_divided`` and ``per_head`` divided.
    """
    model, width = whole("hidden_size", hidden), whole("head_dim", heads.width)
    count = even("num_attention_heads", heads.count)
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    value_width = whole("v_head_dim", heads.value_width)
    query: tuple[Dim, ...] = (count, width)
    if query_parts > 1:
        query = (count, whole("query and gate", query_parts), width)
    made = linear(names.query, query, model, bias=qkv_bias)
    made += linear(names.key, (kv, width), model, bias=qkv_bias)
    if value:
        made += linear(names.value, (kv, value_width), model, bias=qkv_bias)
    made += linear(names.output, model, (count, value_width), bias=o_bias)
    return made + _qk_norms(heads, names, qk_norm)


def _qk_norms(heads: Heads, names: AttentionNames, kind: str) -> Tensors:
    width = whole("head_dim", heads.width)
    if not kind:
        return ()
    if kind == "head":
        return norm(names.query_norm, width) + norm(names.key_norm, width)
    if kind == "full":
        query, key = whole("num_attention_heads", heads.count), whole("num_key_value_heads", heads.kv)
    else:
        query = even("num_attention_heads", heads.count)
        key = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    return norm(names.query_norm, query, width) + norm(names.key_norm, key, width)


def mlp(
    path: str,
    hidden: int,
    width: int,
    *,
    gated: bool = True,
    bias: bool = False,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    split: Split = Split.EVEN,
    width_name: str = "intermediate_size",
) -> Tensors:
    """A feed-forward perceptron: gate and up (column parallel), down (row parallel)."""
    gate, up, down = (f"{path}.{name}" if path else name for name in names)
    inner = Dim(width_name, width, split)
    model = whole("hidden_size", hidden)
    made = linear(gate, inner, model, bias=bias) if gated else ()
    return made + linear(up, inner, model, bias=bias) + linear(down, model, inner, bias=bias)


def experts(
    path: str, count: int, hidden: int, width: int, *, gated: bool = True, bias: bool = False, least: int = 0
) -> Tensors:
    """count experts, each a perceptron; divided by experts under expert parallelism, else by width.

    least: the narrowest share of a divided expert; narrower ones are padded.
    """
    stack = Dim("num_experts", count, Split.EXPERTS)
    inner, model = Dim("expert width", width, Split.EXPERT_WIDTH, least), whole("hidden_size", hidden)
    kind = Role.EXPERT
    made = linear(f"{path}.gate_proj", inner, model, bias=bias, role=kind, stack=stack) if gated else ()
    made += linear(f"{path}.up_proj", inner, model, bias=bias, role=kind, stack=stack)
    return made + linear(f"{path}.down_proj", model, inner, bias=bias, role=kind, stack=stack)


def router(
    path: str,
    count: int,
    hidden: int,
    *,
    bias: bool = False,
    dtype: str | None = None,
    correction: str | None = None,
    correction_dtype: str = "float32",
) -> Tensors:
    """The gate that chooses experts, kept whole and unquantised, and its correction bias."""
    made = vector(path, whole("num_experts", count), whole("hidden_size", hidden), dtype=dtype)
    if bias:
        made += vector(f"{path}.bias", whole("num_experts", count), dtype=dtype)
    if correction:
        made += vector(correction, whole("num_experts", count), dtype=correction_dtype)
    return made


def embedding(name: str, vocabulary: int, width: int, role: Role = Role.EMBEDDING) -> Tensor:
    """A table of vocabulary × width, padded and divided along the vocabulary."""
    return Tensor(
        name, (Dim("vocab_size", vocabulary, Split.VOCABULARY),), (whole("hidden_size", width),), (), role
    )
