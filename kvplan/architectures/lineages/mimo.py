"""MiMo 7B and MiMo-V2: windowed layers with heads of their own; the encoders of V2.5.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/mimo.py, mimo_v2.py; 0.33 mimo_v2_omni.py,
mimo_audio.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.custom import entries, width_per_head
from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import (
    AttentionNames,
    Heads,
    Tensors,
    attention,
    even,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe
from kvplan.architectures.blocks.tower import (
    VISION,
    Raw,
    placed,
    qwen_patches,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.custom_types import VLLM_MODELS, CustomType, copy_of
from kvplan.architectures.config.view import MAX_FACTOR, ConfigView, check_integer, derived
from kvplan.architectures.media.rule import Pixels, Rule
from kvplan.architectures.prediction import FINAL_NORMS, WINDOWED_KINDS, Forward, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, Part, SlidingWindow
from kvplan.model import Layer
from kvplan.weights.inventory import Placed


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


def _omni(raw: Raw, view: ConfigView) -> list[Placed]:
    """The encoders of V2.5 for images and sound. The audio encoder is the library's, whole on every rank.

    Not here: the audio tokenizer, which vLLM reads from a folder of the checkpoint if it is given a path.
    """
    made = _seen(vision_view(raw), hidden_size(view)) if raw.get("vision_config") else ()
    return placed(made + (_heard(vision_view(raw, "audio_config")) if raw.get("audio_config") else ()))


def _seen(vision: ConfigView, text: int) -> Tensors:
    """Qwen2.5-VL's blocks with fewer key heads of 64, and a sink a head where a block has a window."""
    hidden, depth = int(vision.integer("hidden_size")), tower_layers(vision, "depth")
    merge = int(vision.integer("spatial_merge_size", highest=MAX_FACTOR))
    heads = Heads(int(vision.integer("num_heads")), int(vision.integer("num_key_value_heads")), 64, 64)
    names = AttentionNames("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj")
    layer = attention(heads, hidden, names=names, qkv_bias=True, o_bias=True)
    layer += mlp("mlp", hidden, int(vision.integer("intermediate_size")), bias=True)
    layer += norms(("norm1", "norm2"), whole(VISION, hidden))
    made = qwen_patches(vision, bias=False) + repeated("visual.blocks", layer, depth)
    unwindowed = vision.sequence("fullatt_block_indexes") or []
    if vision.flag("use_sink"):
        sink = vector("attn.sinks", whole("vision heads", heads.count))
        made += repeated("visual.blocks", sink, depth - len(unwindowed))
    wide, narrow = whole("merged width", hidden * merge**2), even("merged width", hidden * merge**2)
    made += norm("visual.merger.ln_q", whole(VISION, hidden)) + linear("visual.merger.mlp.0", narrow, wide)
    return made + linear("visual.merger.mlp.2", whole("hidden_size", text), narrow)


def _heard(audio: ConfigView) -> Tensors:
    """Code books, a Qwen2 of its own whose unused embedding of 151,936 words stays, and a projection."""
    hidden, channels = int(audio.integer("input_local_dim")), int(audio.integer("audio_channels"))
    model, path = whole("input_local_dim", hidden), "audio_encoder.input_local_transformer"
    inner = whole("input_local_intermediate_size", int(audio.integer("input_local_intermediate_size")))
    layer: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        layer += linear(f"self_attn.{name}", model, model, bias=True)
    layer += linear("self_attn.o_proj", model, model) + linear("mlp.gate_proj", inner, model)
    layer += linear("mlp.up_proj", inner, model) + linear("mlp.down_proj", model, inner)
    layer += norms(("input_layernorm", "post_attention_layernorm"), model)
    made = vector(f"{path}.embed_tokens", whole("Qwen2Config's vocab_size", 151_936), model)
    made += repeated(f"{path}.layers", layer, tower_layers(audio, "input_local_layers"))
    made += norm(f"{path}.norm", model) if audio.flag("add_post_norm") else ()
    for index, size in enumerate(_per_channel(audio, "speech_vocab_size", channels)):
        made += vector(f"audio_encoder.speech_embeddings.{index}", whole("speech_vocab_size", size), model)
    grouped = hidden * int(audio.integer("group_size"))
    into, out = (
        whole("grouped width", grouped),
        whole("out_hidden_size", int(audio.integer("out_hidden_size"))),
    )
    if int(audio.integer("projection_layers")) == 1:
        return made + linear("audio_encoder.projection", out, into)
    between = whole("projection width", 4 * grouped)
    made += linear("audio_encoder.projection.mlp.0", between, into)
    return made + linear("audio_encoder.projection.mlp.2", out, between)


def _per_channel(audio: ConfigView, key: str, channels: int) -> list[int]:
    """One number for every channel, or one a channel between dashes."""
    words = str(audio.get(key)).split("-")
    if len(words) not in (1, channels) or not all(word.isdecimal() for word in words):
        raise audio.refuse(key, "is neither a number nor one for each channel")
    return [int(word) for word in words] * (channels if len(words) == 1 else 1)


_MEDIA = Rule(
    "merged",
    patch=("vision_config.patch_size", 16),
    pixels=Pixels(8192, 8_388_608),
    source="XiaomiMiMo/MiMo-V2.5 config.json, processor_config",
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
    tower=_omni,
    prediction=_MIMO_V2,
    media=_MEDIA,
)
lineage(
    "mimo_v2_flash",
    layers=Recipe({FULL: _mimo_full, SLIDING: _mimo_sliding}, _mimo_v2_flash),
    tensors=mimo_v2_tensors,
    prediction=_MIMO_V2,
)
