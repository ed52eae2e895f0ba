"""Decoders of attention and a perceptron or experts: one row of data for each architecture.

Source of the rows: vllm-project/vllm vllm/model_executor/models/ (0.32), the file of the architecture.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.blocks.decoder import head_dim, num_heads, num_kv_heads, plain_decoder
from kvplan.architectures.blocks.frame import Flag, Frame, holds
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import (
    RMS,
    SEPARATE,
    AttentionNames,
    Heads,
    Tensors,
    attention,
    even,
    fused,
    mlp,
    norms,
    vector,
    whole,
)
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, LayersRule
from kvplan.record import record
from kvplan.weights.inventory import Split

NONE = "none"
"""A norm without weight."""

BIAS = "attention_bias"

QK_LAYERNORM = AttentionNames(query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm")

OUT_PROJ = AttentionNames(output="self_attn.out_proj")

FAIRSEQ_NORMS = ("self_attn_layer_norm", "final_layer_norm")

ONE_NORM = ("input_layernorm",)


def sinks(view: ConfigView) -> Tensors:
    """One attention sink for every head."""
    return vector("self_attn.sinks", even("num_attention_heads", int(num_heads(view))))


ANY_BIAS = ("attention_bias", "bias")

EVERYWHERE = Frame(everywhere=True)


def llama_qkv_bias(view: ConfigView) -> bool:
    """qkv_bias where the config has one (internlm3), else attention_bias or bias (llama.py)."""
    if view.given("qkv_bias"):
        return view.flag("qkv_bias")
    return bool(view.get("attention_bias") or view.get("bias"))


def unshared_heads(view: ConfigView) -> Heads:
    """Multi-head attention: every head has its own key and value, whatever else the config says."""
    count = int(num_heads(view))
    width = int(view.integer(*HIDDEN_KEYS)) // count
    return Heads(count, count, width, width)


JOINT = fused("self_attn", "qkv_proj", "o_proj")

JOINT_MLP = ("gate_up_proj", "gate_up_proj", "down_proj")

TWO_NORMS = ("input_layernorm", "post_attention_layernorm")


def heads_of(view: ConfigView) -> Heads:
    """The heads that the whole model shares."""
    width = int(head_dim(view))
    return Heads(int(num_heads(view)), int(num_kv_heads(view)), width, width)


PLAIN_FRAME = Frame()

LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def nothing_more(view: ConfigView) -> Tensors:
    """No tensors beside attention, perceptron and norms."""
    return ()


NormNames = tuple[str, ...] | Callable[[ConfigView], tuple[str, ...]]


def hidden_size(view: ConfigView) -> int:
    return int(view.integer(*HIDDEN_KEYS))


@record()
class Plain:
    """One architecture, its cache and its tensors. Flags are config keys or fixed; names the checkpoint's."""

    layers: LayersRule = plain_decoder
    """what each layer keeps, of the heads that the projections have"""
    frame: Frame = PLAIN_FRAME
    norm: str = RMS
    norms: NormNames = TWO_NORMS
    names: AttentionNames = SEPARATE
    heads: Callable[[ConfigView], Heads] = heads_of
    qkv_bias: Flag = False
    o_bias: Flag = False
    qk_norm: str = ""
    qk_norm_if: Flag = True
    mlp: str = "mlp"
    mlp_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    mlp_bias: Flag = False
    mlp_divided: bool = True
    gated: bool = True
    width: tuple[str, ...] = ("intermediate_size",)
    """keys of the perceptron's width, or width_of computes it; mlp_divided False: vLLM's general backend
    keeps the perceptron whole"""
    width_of: Callable[[ConfigView], int] | None = None
    moe: Moe | None = None
    """its experts, and which layers have them"""
    more: Callable[[ConfigView], Tensors] = nothing_more
    """what every layer has beside that (sinks, gates, scales)"""

    def __call__(self, view: ConfigView) -> Decoder:
        count = int(view.num_layers(*LAYER_KEYS))
        sparse = [self.moe is not None and self.moe.layer_is_sparse(view, index) for index in range(count)]
        made = {kind: self.layer(view, sparse=kind) for kind in dict.fromkeys(sparse)}
        return Decoder(self.frame, tuple(made[kind] for kind in sparse))

    def layer(self, view: ConfigView, *, sparse: bool = False) -> Tensors:
        """The tensors of one layer."""
        hidden = hidden_size(view)
        names = self.norms(view) if callable(self.norms) else self.norms
        return (
            attention(
                self.heads(view),
                hidden,
                names=self.names,
                qkv_bias=holds(view, self.qkv_bias),
                o_bias=holds(view, self.o_bias),
                qk_norm=self.qk_norm if holds(view, self.qk_norm_if) else "",
            )
            + (self.moe.tensors(view) if sparse and self.moe else self.dense(view, hidden))
            + norms(names, whole("hidden_size", hidden), self.norm)
            + self.more(view)
        )

    def dense(self, view: ConfigView, hidden: int) -> Tensors:
        """The perceptron of a layer without experts."""
        width = self.width_of(view) if self.width_of else int(view.integer(*self.width))
        return mlp(
            self.mlp,
            hidden,
            width,
            gated=self.gated,
            bias=holds(view, self.mlp_bias),
            names=self.mlp_names,
            split=Split.EVEN if self.mlp_divided else Split.WHOLE,
        )


LLAMA = Plain(qkv_bias=llama_qkv_bias, o_bias=ANY_BIAS, mlp_bias="mlp_bias")


def four_times(view: ConfigView) -> int:
    """n_inner (or ffn_hidden_size) where stated, else 4 × hidden_size."""
    return int(view.optional_integer("n_inner", "ffn_hidden_size") or 4 * view.integer(*HIDDEN_KEYS))


NEOX_MLP = ("", "dense_h_to_4h", "dense_4h_to_h")

FOUR_NORMS = (*TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")

AFTER_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")

HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")


def expansion(view: ConfigView, key: str) -> float:
    """How many times as wide as the model a mixer is."""
    return view.number(key, default=2, lowest=1e-3, highest=1e3)
