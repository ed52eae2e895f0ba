"""State-space mixers and linear attention: what they keep and which tensors they have.

Mamba, Mamba-2, gated delta net, Kimi delta attention (KDA), short convolution. Sources:
huggingface/transformers 5.23.0 models/*/configuration_*.py; vllm-project/vllm 0.32
vllm/model_executor/layers/mamba/: mamba_mixer.py, mamba_mixer2.py, gdn/qwen_gdn_linear_attn.py,
gdn/kimi_gdn_linear_attn.py, short_conv.py. Heads and inner widths are divided; Mamba-2 groups are divided
or, when there is one, kept; the low-rank gates of KDA are kept.
"""

from __future__ import annotations

from kvplan.architectures.blocks.parts import (
    AttentionNames,
    Tensors,
    even,
    keyed,
    linear,
    norm,
    unquantised,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import expansion, hidden_size
from kvplan.architectures.blocks.recipe import Parts
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.families import KimiDeltaAttention, Mamba1, Mamba2
from kvplan.record import record
from kvplan.weights.inventory import Dim, Split


def kimi_delta_part(view: ConfigView) -> Parts:
    """linear_attn_config of the released files overrides the linear_ keys."""
    own = view.inner("linear_attn_config")
    return (
        KimiDeltaAttention(
            own.optional_integer("num_heads") or view.integer("linear_num_heads"),
            own.optional_integer("head_dim") or view.integer("linear_head_dim"),
            own.optional_integer("short_conv_kernel_size") or view.integer("linear_conv_kernel_dim"),
        ),
    )


def inner_width(view: ConfigView, factor: str) -> int:
    """expand * hidden_size; the factor may be a fraction."""
    value = view.get(factor)
    if isinstance(value, float) and not value.is_integer() and 0 < value < 1e6:
        return derived(int(value * view.integer("hidden_size")), f"{factor} * hidden_size")
    return derived(view.integer(factor) * view.integer("hidden_size"), f"{factor} * hidden_size")


def mamba1_part(view: ConfigView) -> Mamba1:
    return Mamba1(
        inner_width(view, "mamba_expand"),
        view.integer("mamba_d_state"),
        view.integer("mamba_d_conv"),
        ssm_dtype=view.word("mamba_ssm_cache_dtype"),
    )


def mamba1_parts(view: ConfigView) -> Parts:
    return (mamba1_part(view),)


BLOCK_TYPE_KEYS = ("layer_types", "layers_block_type")


def _auto_head_dim(view: ConfigView, inner: int, heads: int) -> int:
    """mamba_d_head; "auto" is the inner width over the heads."""
    if view.get("mamba_d_head") in (None, "auto"):
        return derived(inner // heads, "mamba width // mamba_n_heads (mamba_d_head: auto)")
    return view.integer("mamba_d_head")


def mamba2_part(view: ConfigView, inner: int) -> Mamba2:
    heads = view.integer("mamba_n_heads")
    width = _auto_head_dim(view, inner, heads)
    if heads * width != inner:
        raise view.refuse(
            "mamba_n_heads", f"mamba_n_heads * mamba_d_head is {heads * width:,}, not {inner:,}"
        )
    return Mamba2(
        num_heads=heads,
        head_dim=width,
        state_size=view.integer("mamba_d_state"),
        n_groups=view.integer("mamba_n_groups"),
        conv_kernel=view.integer("mamba_d_conv"),
        ssm_dtype=view.word("mamba_ssm_cache_dtype"),
    )


def mamba2_parts(view: ConfigView) -> Parts:
    return (mamba2_part(view, inner_width(view, "mamba_expand")),)


JAMBA_NAMES = AttentionNames("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


def step_rank(view: ConfigView, key: str) -> int:
    """The rank of the time step's projection; "auto": hidden_size / 16, rounded up."""
    if view.get(key, default="auto") == "auto":
        return -(-hidden_size(view) // 16)
    return int(view.integer(key))


def mamba_hidden(view: ConfigView) -> int:
    """mamba_expand × hidden_size."""
    return int(expansion(view, "mamba_expand") * view.integer("hidden_size"))


def bamba_mixer(view: ConfigView, inner: int, path: str = "mamba") -> Tensors:
    """Mamba-2 under the keys of Bamba, Granite and Falcon-H1."""
    return mamba2(
        path,
        Mamba2Sizes(
            hidden=hidden_size(view),
            inner=inner,
            heads=int(view.integer("mamba_n_heads")),
            groups=int(view.integer("mamba_n_groups")),
            state=int(view.integer("mamba_d_state")),
            kernel=int(view.integer("mamba_d_conv")),
            bias=view.flag("mamba_proj_bias"),
            conv_bias=view.flag("mamba_conv_bias", default=True),
            norm=view.flag("mamba_rms_norm", default=True),
        ),
    )


@record()
class Mamba2Sizes:
    """Sizes of one Mamba-2 mixer."""

    hidden: int
    inner: int
    heads: int
    groups: int
    state: int
    kernel: int
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True


def mamba2(path: str, sizes: Mamba2Sizes) -> Tensors:
    """in_proj makes gate, input, B, C and dt; a convolution over input, B and C; A, D and dt_bias by head."""
    hidden, heads = whole("hidden_size", sizes.hidden), even("mamba heads", sizes.heads)
    inner = even("mamba inner width", sizes.inner)
    groups = Dim("mamba groups", sizes.groups, Split.HEADS_KEPT)
    state, kernel = whole("mamba state size", sizes.state), whole("mamba kernel", sizes.kernel)
    both = (whole("gate and input", 2), inner)
    pair = (whole("B and C", 2), groups, state)
    made: Tensors = ()
    for rows in (both, pair, (heads,)):
        made += linear(f"{path}.in_proj", rows, hidden, bias=sizes.bias)
    for columns in ((inner,), pair):
        made += vector(f"{path}.conv1d", *columns, kernel)
        if sizes.conv_bias:
            made += vector(f"{path}.conv1d.bias", *columns)
    made += vector(f"{path}.A_log", heads, dtype="float32") + vector(f"{path}.D", heads)
    made += vector(f"{path}.dt_bias", heads)
    if sizes.norm:
        made += norm(f"{path}.norm", inner)
    return made + linear(f"{path}.out_proj", hidden, inner, bias=sizes.bias)


def mamba1(
    path: str,
    hidden: int,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    inner_norms: bool = False,
) -> Tensors:
    """in_proj makes gate and input, x_proj the time step, B and C, dt_proj the step of every channel."""
    model, width = whole("hidden_size", hidden), even("mamba inner width", inner)
    states, low = whole("mamba state size", state), whole("time step rank", rank)
    made = linear(f"{path}.in_proj", (whole("gate and input", 2), width), model, bias=bias)
    made += vector(f"{path}.conv1d", width, whole("mamba kernel", kernel))
    if conv_bias:
        made += vector(f"{path}.conv1d.bias", width)
    # Mamba's mixer in vLLM takes no quantisation config for these projections.
    made += unquantised(f"{path}.x_proj", whole("time step rank + 2 × state", rank + 2 * state), width)
    made += unquantised(f"{path}.dt_proj", width, low) + vector(f"{path}.dt_proj.bias", width)
    made += vector(f"{path}.A_log", width, states, dtype="float32") + vector(f"{path}.D", width)
    if inner_norms:
        made += norm(f"{path}.dt_layernorm", low)
        made += norm(f"{path}.b_layernorm", states) + norm(f"{path}.c_layernorm", states)
    return made + linear(f"{path}.out_proj", model, width, bias=bias)


def gated_delta_net(view: ConfigView, hidden: int, *, joint: bool, path: str = "linear_attn") -> Tensors:
    """Query, key, value and gate projections, beta and alpha, a convolution over query, key and value.

    joint: the checkpoint has in_proj_qkvz and in_proj_ba (Qwen3-Next); else four matrices (Qwen3.5).
    """
    keys = even("linear_num_key_heads", int(view.integer("linear_num_key_heads")))
    values = even("linear_num_value_heads", int(view.integer("linear_num_value_heads")))
    key = keyed(view, "linear_key_head_dim")
    value = keyed(view, "linear_value_head_dim")
    kernel = keyed(view, "linear_conv_kernel_dim")
    model, two = whole("hidden_size", hidden), whole("query and key", 2)
    wide, tall = (two, keys, key), (values, value)
    qkv, z, b, a = (
        ("in_proj_qkvz", "in_proj_qkvz", "in_proj_ba", "in_proj_ba")
        if joint
        else ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
    )
    made = linear(f"{path}.{qkv}", wide, model) + linear(f"{path}.{qkv}", tall, model)
    made += linear(f"{path}.{z}", tall, model)
    made += linear(f"{path}.{b}", values, model) + linear(f"{path}.{a}", values, model)
    made += vector(f"{path}.conv1d", *wide, kernel) + vector(f"{path}.conv1d", *tall, kernel)
    made += vector(f"{path}.dt_bias", values) + vector(f"{path}.A_log", values, dtype="float32")
    return made + norm(f"{path}.norm", value) + linear(f"{path}.out_proj", model, tall)


def kimi_delta(
    hidden: int, heads: int, width: int, kernel: int, *, full_gate: bool, path: str = "self_attn"
) -> Tensors:
    """Kimi delta attention. full_gate: the output gate has full rank (Kimi K3), else rank head_dim."""
    count, inner, model = even("kda heads", heads), whole("kda head_dim", width), whole("hidden_size", hidden)
    both = (count, inner)
    made: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        made += linear(f"{path}.{name}", both, model)
        made += vector(
            f"{path}.{name[0]}_conv1d", *both, whole("short_conv_kernel_size", kernel), dtype="float32"
        )
    made += linear(f"{path}.f_a_proj", inner, model) + linear(f"{path}.f_b_proj", both, inner)
    made += linear(f"{path}.b_proj", count, model)
    if full_gate:
        made += linear(f"{path}.g_proj", both, model)
    else:
        made += linear(f"{path}.g_a_proj", inner, model) + linear(f"{path}.g_b_proj", both, inner)
    made += vector(f"{path}.dt_bias", *both, dtype="float32") + vector(
        f"{path}.A_log", count, dtype="float32"
    )
    return made + norm(f"{path}.o_norm", inner) + linear(f"{path}.o_proj", model, both)


def short_convolution(path: str, width: int, kernel: int, *, bias: bool) -> Tensors:
    """LFM2's gated convolution: in_proj makes three streams of the width."""
    inner = even("conv_dim", width)
    three = (whole("three streams", 3), inner)
    made = linear(f"{path}.in_proj", three, whole("conv_dim", width), bias=bias)
    made += vector(f"{path}.conv", inner, whole("conv_L_cache", kernel))
    if bias:
        made += vector(f"{path}.conv.bias", inner)
    return made + linear(f"{path}.out_proj", whole("conv_dim", width), inner, bias=bias)
