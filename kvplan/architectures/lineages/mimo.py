"""MiMo 7B and MiMo-V2: windowed layers with heads of their own.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/mimo.py, mimo_v2.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.custom import entries, width_per_head
from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import Heads, Tensors, attention, even, mlp, norms, vector, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe
from kvplan.architectures.config.custom_types import VLLM_MODELS, CustomType, copy_of
from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.prediction import FINAL_NORMS, WINDOWED_KINDS, Forward, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, Part, SlidingWindow
from kvplan.model import Layer


def mimo_v2_layers(view: ConfigView) -> list[Layer]:
    """MiMo-V2: hybrid_layer_pattern 1 = windowed, with its own heads and widths; V narrower than K.

    Source: vllm-project/vllm 0.32 vllm/model_executor/models/mimo_v2.py.
    """
    pattern = entries(view, "hybrid_layer_pattern", view.num_layers())
    full = FullAttention(
        view.integer("num_key_value_heads"), width_per_head(view), view.optional_integer("v_head_dim")
    )
    parts: dict[int, Part] = {0: full}
    if 1 in pattern:
        parts[1] = SlidingWindow(
            view.integer("swa_num_key_value_heads"),
            view.integer("swa_head_dim"),
            view.integer("sliding_window_size", "sliding_window"),
            view.optional_integer("swa_v_head_dim"),
        )
    where = f"{view.path}hybrid_layer_pattern"
    return [Layer((parts[check_integer(kind, where, 0, 1)],)) for kind in pattern]


def _mimo_full(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view), view.integer("v_head_dim")),)


def _mimo_sliding(view: ConfigView) -> Parts:
    """Windowed layers have twice the KV heads, a constant of the model's code (models/mimo_v2_flash).

    ``sliding_window_size`` counts the tokens before the current one in transformers, which adds it.
    """
    said = view.optional_integer("sliding_window_size")
    return (
        SlidingWindow(
            derived(2 * num_kv_heads(view), "2 * num_key_value_heads (windowed layers)"),
            head_dim(view),
            said or window(view),
            view.integer("v_head_dim"),
            library_window=None if said is None else derived(said + 1, "sliding_window_size + 1"),
        ),
    )


def _mimo_v2_flash(view: ConfigView, count: int) -> list[str]:
    return [FULL if index == 0 or (index + 1) % 6 == 0 else SLIDING for index in range(count)]


MIMO_MOE = Moe(
    count=("n_routed_experts",), correction="mlp.gate.e_score_correction_bias", gate_dtype="float32"
)


def mimo_v2_tensors(view: ConfigView) -> Decoder:
    """hybrid_layer_pattern 1: windowed, own heads, a sink a head; moe_layer_freq: which have experts."""
    hidden, count = hidden_size(view), int(view.num_layers())
    pattern, freq = view.sequence("hybrid_layer_pattern"), view.sequence("moe_layer_freq")
    for key, values in (("hybrid_layer_pattern", pattern), ("moe_layer_freq", freq)):
        if values is None or len(values) != count:
            raise view.refuse(key, "a list with one entry a layer is needed")
    bias = view.flag("attention_bias")
    around = norms(TWO_NORMS, whole("hidden_size", hidden))

    def heads(prefix: str) -> Heads:
        width = int(view.integer(f"{prefix}head_dim"))
        return Heads(
            int(view.integer(f"{prefix}num_attention_heads")),
            int(view.integer(f"{prefix}num_key_value_heads")),
            width,
            int(view.optional_integer(f"{prefix}v_head_dim") or width),
        )

    @lru_cache(maxsize=4)
    def layer(windowed: bool, sparse: bool) -> Tensors:
        own = heads("swa_" if windowed else "")
        made = attention(own, hidden, qkv_bias=bias)
        if windowed and view.flag("add_swa_attention_sink_bias"):
            made += vector("self_attn.attention_sink_bias", even("num_attention_heads", own.count))
        made += (
            MIMO_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return made + around

    return Decoder(
        Frame(), tuple(layer(kind == 1, bool(moe)) for kind, moe in zip(pattern or (), freq or ()))
    )


_MIMO_V2 = Prediction(
    default=1,
    most=1,
    kinds=WINDOWED_KINDS,
    forward=Forward.DENSE,
    joins=Joins(FINAL_NORMS),
    path="model.mtp.layers.{i}",
)


lineage(
    "mimo",
    reads=copy_of("qwen2", VLLM_MODELS + "mimo.py (MiMoModel is Qwen2Model)"),
    tensors=Plain(qkv_bias=True, qk_norm="head", qk_norm_if="qk_norm"),
    prediction=Prediction(
        joins=Joins(("token_layernorm", "hidden_layernorm", "final_layernorm"), ("input_proj",)),
        path="model.mtp_layers.{i}",
    ),
)
lineage(
    "mimo_v2",
    reads=CustomType(VLLM_MODELS + "mimo_v2.py"),
    layers=mimo_v2_layers,
    tensors=mimo_v2_tensors,
    prediction=_MIMO_V2,
)
lineage(
    "mimo_v2_flash",
    layers=Recipe({FULL: _mimo_full, SLIDING: _mimo_sliding}, _mimo_v2_flash),
    tensors=mimo_v2_tensors,
    prediction=_MIMO_V2,
)
