"""State-space types.

Mamba and Mamba-2, alone and beside attention: Jamba, Bamba, Granite 4, Falcon-H1, Nemotron-H, Zamba.

Sources: huggingface/transformers 5.23.0, models/*/configuration_*.py and the mixers' ``__init__``.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import ATTENTION, full, num_heads, num_kv_heads
from kvplan.architectures.lineages.layers.recipe import (
    FULL,
    HYBRID,
    LINEAR,
    Parts,
    Recipe,
    all_of,
    index_list,
    known_word,
    layers_of,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import (
    FullAttention,
    Mamba1,
    Mamba2,
)
from kvplan.model import Layer


def _inner(view: ConfigView, factor: str) -> int:
    """expand * hidden_size; the factor may be a fraction."""
    value = view.get(factor)
    if isinstance(value, float) and not value.is_integer() and 0 < value < 1e6:
        return derived(int(value * view.integer("hidden_size")), f"{factor} * hidden_size")
    return derived(view.integer(factor) * view.integer("hidden_size"), f"{factor} * hidden_size")


# ----------------------------------------------------------------------------------------- Mamba alone


@rule("mamba", "falcon_mamba")
def mamba(view: ConfigView) -> list[Layer]:
    """d_inner = intermediate_size where the file has it, else expand * hidden_size."""
    inner = view.optional_integer("intermediate_size") or _inner(view, "expand")
    part = Mamba1(inner, view.integer("state_size"), view.integer("conv_kernel"))
    return [Layer((part,))] * view.num_layers()


@rule("mamba2")
def mamba2(view: ConfigView) -> list[Layer]:
    part = Mamba2(
        num_heads=view.integer("num_heads"),
        head_dim=view.integer("head_dim"),
        state_size=view.integer("state_size"),
        n_groups=view.integer("n_groups"),
        conv_kernel=view.integer("conv_kernel"),
    )
    if part.num_heads * part.head_dim != _inner(view, "expand"):
        raise view.refuse("num_heads", "num_heads * head_dim is not expand * hidden_size")
    return [Layer((part,))] * view.num_layers()


# ------------------------------------------------------------------------------ Mamba beside attention


def _mamba1(view: ConfigView) -> Mamba1:
    return Mamba1(
        _inner(view, "mamba_expand"),
        view.integer("mamba_d_state"),
        view.integer("mamba_d_conv"),
        ssm_dtype=view.word("mamba_ssm_cache_dtype"),
    )


def _mamba1_layer(view: ConfigView) -> Parts:
    return (_mamba1(view),)


def _jamba(view: ConfigView, count: int) -> list[str]:
    period = view.integer("attn_layer_period")
    offset = view.integer("attn_layer_offset", lowest=0)
    return [FULL if index % period == offset else LINEAR for index in range(count)]


_OLD_KEYS = ("layer_types", "layers_block_type")

rule("jamba")(Recipe({FULL: full, LINEAR: _mamba1_layer}, _jamba, keys=_OLD_KEYS))


def _auto_head_dim(view: ConfigView, inner: int, heads: int) -> int:
    """mamba_d_head; "auto" is the inner width over the heads."""
    if view.get("mamba_d_head") in (None, "auto"):
        return derived(inner // heads, "mamba width // mamba_n_heads (mamba_d_head: auto)")
    return view.integer("mamba_d_head")


def _mamba2(view: ConfigView, inner: int) -> Mamba2:
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


def _bamba_layer(view: ConfigView) -> Parts:
    return (_mamba2(view, _inner(view, "mamba_expand")),)


def _bamba(view: ConfigView, count: int) -> list[str]:
    attention = set(index_list(view, "attn_layer_indices") or ())
    return [FULL if index in attention else LINEAR for index in range(count)]


rule("bamba")(Recipe({FULL: full, LINEAR: _bamba_layer}, _bamba, keys=_OLD_KEYS))
rule("granitemoehybrid")(Recipe({**ATTENTION, LINEAR: _bamba_layer}, all_of(LINEAR), keys=_OLD_KEYS))


def _falcon_h1_layer(view: ConfigView) -> Parts:
    """K and V and a Mamba-2 state in every layer."""
    inner = view.optional_integer("mamba_d_ssm") or _inner(view, "mamba_expand")
    return (*full(view), _mamba2(view, inner))


rule("falcon_h1")(Recipe({HYBRID: _falcon_h1_layer}, all_of(HYBRID)))


_NEMOTRON_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def _nemotron_kinds(view: ConfigView) -> list[str]:
    """layers_block_type, else hybrid_override_pattern, else one of each; num_hidden_layers is not read."""
    given = view.sequence("layers_block_type") if view.given("layers_block_type") else None
    if given is not None:
        return [known_word(view, "layers_block_type", word) for word in given]
    pattern = view.word("hybrid_override_pattern")
    if pattern is None:
        return list(_NEMOTRON_LETTERS.values())
    unknown = set(pattern) - set(_NEMOTRON_LETTERS)
    if unknown:
        raise view.refuse("hybrid_override_pattern", f"unknown letter {min(unknown)!r}")
    if len(pattern) > 4096:
        raise view.refuse("hybrid_override_pattern", f"{len(pattern):,} layers")
    return [_NEMOTRON_LETTERS[letter] for letter in pattern]


def _nemotron_mamba(view: ConfigView) -> Parts:
    # Older files use Bamba's names; where both stand, the older name wins (configuration_nemotron_h.py).
    groups = view.integer("mamba_n_groups" if view.given("mamba_n_groups") else "n_groups")
    kernel = view.integer("mamba_d_conv" if view.given("mamba_d_conv") else "conv_kernel")
    return (
        Mamba2(
            num_heads=view.integer("mamba_num_heads"),
            head_dim=view.integer("mamba_head_dim"),
            state_size=view.integer("ssm_state_size"),
            n_groups=groups,
            conv_kernel=kernel,
            ssm_dtype=view.word("mamba_ssm_cache_dtype"),
        ),
    )


@rule("nemotron_h")
def nemotron_h(view: ConfigView) -> list[Layer]:
    return layers_of(view, _nemotron_kinds(view), {**ATTENTION, LINEAR: _nemotron_mamba})


# ----------------------------------------------------------------------------------------------- Zamba


def _zamba_attention(view: ConfigView) -> FullAttention:
    """The shared block attends over [hidden, embedding]: heads are twice as wide."""
    width = view.optional_integer("attention_head_dim") or derived(
        2 * view.integer("hidden_size") // num_heads(view), "2 * hidden_size // num_attention_heads"
    )
    return FullAttention(num_kv_heads(view), width)


def _zamba_pattern(view: ConfigView, count: int) -> list[str]:
    period = view.integer("attn_layer_period")
    offset = view.integer("attn_layer_offset", lowest=0)
    rest = [HYBRID if index % period == offset else LINEAR for index in range(max(count - 3, 0))]
    return [LINEAR, LINEAR, HYBRID, *rest][:count]


rule("zamba")(
    Recipe(
        {LINEAR: _mamba1_layer, HYBRID: lambda view: (_zamba_attention(view), _mamba1(view))},
        _zamba_pattern,
        keys=("layers_block_type",),
    )
)

_ZAMBA2_54 = (
    [LINEAR]
    + ([LINEAR] * 5 + [HYBRID]) * 7
    + [LINEAR] * 4
    + [HYBRID]
    + [LINEAR] * 3
    + [HYBRID]
    + [LINEAR] * 2
)


def _zamba2_pattern(view: ConfigView, count: int) -> list[str]:
    if count != len(_ZAMBA2_54):
        raise view.refuse(
            "layers_block_type", f"is needed for {count} layers (the class knows a list of 54 only)"
        )
    return list(_ZAMBA2_54)


def _zamba2_mamba(view: ConfigView) -> Mamba2:
    heads = view.integer("n_mamba_heads")
    width = derived(_inner(view, "mamba_expand") // heads, "mamba_expand * hidden_size // n_mamba_heads")
    return Mamba2(
        num_heads=heads,
        head_dim=width,
        state_size=view.integer("mamba_d_state"),
        n_groups=view.integer("mamba_ngroups"),
        conv_kernel=view.integer("mamba_d_conv"),
    )


rule("zamba2")(
    Recipe(
        {
            LINEAR: lambda view: (_zamba2_mamba(view),),
            HYBRID: lambda view: (_zamba_attention(view), _zamba2_mamba(view)),
        },
        _zamba2_pattern,
        keys=("layers_block_type",),
    )
)
