"""Dense decoders of other labs with Llama's layers or nearly so, and wrappers around them.

Sources: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py; where vllm-project/vllm 0.32 has
the class, its file has the same tensors. fuyu: huggingface/transformers 5.23.0
models/fuyu/modeling_fuyu.py; idefics3, smolvlm, persimmon, stablelm: vllm-project/vllm 0.32
vllm/model_executor/models/
"""

from __future__ import annotations

from kvplan.architectures.blocks.cross import bart_like_layers
from kvplan.architectures.blocks.custom import entries, every_layer, width_per_head
from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads, one_kind, plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    LAYER,
    AttentionNames,
    Tensors,
    attention,
    even,
    fused,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import (
    BIAS,
    EVERYWHERE,
    LLAMA,
    NEOX_MLP,
    NONE,
    TWO_NORMS,
    Plain,
    heads_of,
    hidden_size,
    unshared_heads,
)
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, by_index, rope_layers
from kvplan.architectures.blocks.tower import (
    FACTOR,
    Raw,
    placed,
    siglip,
    tower_layers,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.custom_types import (
    GPT2_NAMES,
    VLLM_CONFIGS,
    VLLM_MODELS,
    CustomType,
    copy_of,
    own_keys,
    own_keys_grouped,
    wrapper_of,
)
from kvplan.architectures.config.view import MAX_FACTOR, ConfigView, check_integer, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, SlidingWindow
from kvplan.model import Layer
from kvplan.weights.inventory import Placed


def plamo_layers(view: ConfigView) -> list[Layer]:
    """PLaMo: n_shared_head query heads share one K and V head.

    Source: pfnet/plamo-13b modeling_plamo.py: k_num_heads = ceil(num_attention_heads / n_shared_head).
    """
    heads, shared = view.integer("num_attention_heads"), view.integer("n_shared_head")
    kv = derived(-(-heads // shared), "ceil(num_attention_heads / n_shared_head)")
    return every_layer(view, FullAttention(kv, width_per_head(view)))


def openelm_layers(view: ConfigView) -> list[Layer]:
    """OpenELM: every layer has its own number of KV heads, all of head_dim.

    Source: apple/OpenELM-270M configuration_openelm.py (num_kv_heads is written as a list).
    """
    count = view.num_layers("num_transformer_layers", "num_hidden_layers")
    width = view.integer("head_dim")
    where = f"{view.path}num_kv_heads"
    return [
        Layer((FullAttention(check_integer(kv, where), width),))
        for kv in entries(view, "num_kv_heads", count)
    ]


def _smollm3(view: ConfigView, count: int) -> list[str]:
    windows = view.flag("use_sliding_window") and view.get("sliding_window") is not None
    return [SLIDING if windows and not rope else FULL for rope in rope_layers(view, count)]


def _activation(view: ConfigView) -> Tensors:
    """xIELU's two learnt numbers."""
    one = whole("one", 1)
    return vector("mlp.act_fn.alpha_p", one) + vector("mlp.act_fn.alpha_n", one)


def _sub_norms(view: ConfigView) -> Tensors:
    inner = whole("intermediate_size", int(view.integer("intermediate_size")))
    made = norm("self_attn.attn_sub_norm", whole("hidden_size", hidden_size(view)))
    return made + norm("mlp.ffn_sub_norm", inner)


def _lambdas(view: ConfigView) -> Tensors:
    width = whole("head_dim", int(head_dim(view)))
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    return sum((vector(f"self_attn.{name}", width) for name in names), ())


def _post_norms(view: ConfigView) -> tuple[str, ...]:
    return (*TWO_NORMS, "post_norm1", "post_norm2") if view.flag("use_post_norm") else TWO_NORMS


def _persimmon_norms(view: ConfigView) -> Tensors:
    if not view.flag("qk_layernorm", default=True):
        return ()
    width = whole("head_dim", int(head_dim(view)))
    return norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), width, LAYER)


def helium_tensors(view: ConfigView) -> Decoder:
    """Llama's layers; the output projection is hidden_size × hidden_size, whatever the heads make."""
    hidden, heads, bias = hidden_size(view), heads_of(view), view.flag(BIAS)
    layer = attention(heads, hidden, qkv_bias=bias)
    layer = tuple(tensor for tensor in layer if not tensor.name.startswith("self_attn.o_proj"))
    layer += linear("self_attn.o_proj", whole("hidden_size", hidden), even("hidden_size", hidden))
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    layer += norms(TWO_NORMS, whole("hidden_size", hidden))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


def solar_layers(view: ConfigView) -> list[Layer]:
    """Every layer is windowed where the config has a window: vLLM's class leaves it to the cache's settings
    (vllm/model_executor/models/solar.py, layers/attention/attention.py)."""
    kv, width = num_kv_heads(view), head_dim(view)
    size = view.optional_integer("sliding_window")
    if size is None or view.get("use_sliding_window") is False:
        return every_layer(view, FullAttention(kv, width))
    return every_layer(view, SlidingWindow(kv, width, size))


def telechat_tensors(view: ConfigView) -> Decoder:
    """Llama's layers in GPT-2's keys; the output and down projections have biases, the others none."""
    hidden, heads = hidden_size(view), heads_of(view)
    layer = attention(heads, hidden, o_bias=True)
    model = whole("hidden_size", hidden)
    layer += mlp("mlp", hidden, int(view.integer("ffn_hidden_size", "intermediate_size")))
    layer += vector("mlp.down_proj.bias", model) + norms(TWO_NORMS, model)
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


INTERNLM2 = AttentionNames("attention.wqkv", "attention.wqkv", "attention.wqkv", "attention.wo")


def _idefics(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP's layers, scale_factor² patches into one projection without bias."""
    vision, top = vision_view(raw), wrapper_view(raw)
    factor = int(top.optional_integer("scale_factor", highest=MAX_FACTOR) or FACTOR)
    wide = whole("patches side by side", int(vision.integer("hidden_size")) * factor**2)
    made = siglip(vision, tower_layers(vision))
    text = whole("hidden_size", hidden_size(view))
    return placed(made + linear("connector.modality_projection.proj", text, wide))


def _fuyu(raw: Raw, view: ConfigView) -> list[Placed]:
    """Patches go straight into the decoder."""
    top, model = wrapper_view(raw), whole("hidden_size", hidden_size(view))
    patch = int(top.optional_integer("patch_size", highest=4096) or 30)
    channels = int(top.optional_integer("num_channels") or 3)
    return placed(linear("vision_embed_tokens", model, whole("patch", patch**2 * channels), bias=True))


lineage("arcee", block=Plain(qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False))
lineage("cwm", layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if i % 4 else FULL)), block=LLAMA)
lineage("yi", tensors=LLAMA)
lineage("internlm", reads=own_keys("internlm/internlm-chat-7b modeling_internlm.py"), tensors=LLAMA)
lineage(
    "internlm2",
    reads=own_keys(VLLM_MODELS + "internlm2.py"),
    tensors=Plain(
        frame=Frame(embed="model.tok_embeddings", head="output", everywhere=True),
        names=INTERNLM2,
        mlp="feed_forward",
        mlp_names=("w1", "w3", "w2"),
        norms=("attention_norm", "ffn_norm"),
        qkv_bias="bias",
        o_bias="bias",
    ),
)
lineage("internlm3", "iquestcoder", block=LLAMA)
lineage("seed_oss", block=Plain(qkv_bias="attention_bias", o_bias="attention_out_bias", mlp_bias="mlp_bias"))
lineage(
    "smollm3",
    layers=Recipe(ATTENTION, _smollm3),
    block=Plain(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
)
lineage(
    "apertus",
    block=Plain(
        norms=("attention_layernorm", "feedforward_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        gated=False,
        qk_norm="head",
        more=_activation,
    ),
)
lineage("hyperclovax", block=Plain(norms=_post_norms, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias"))
lineage("helium", layers=plain_decoder, tensors=helium_tensors)
lineage(
    "nanochat",
    block=Plain(
        frame=Frame(norm=NONE),
        norm=NONE,
        qkv_bias=BIAS,
        o_bias=BIAS,
        gated=False,
        mlp_names=("", "fc1", "fc2"),
    ),
)
lineage(
    "jais2",
    block=Plain(
        frame=Frame(norm=LAYER), norm=LAYER, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False
    ),
)
lineage(
    "orion",
    reads=own_keys(VLLM_MODELS + "orion.py"),
    tensors=Plain(frame=Frame(everywhere=True, norm=LAYER), norm=LAYER),
)
lineage(
    "baichuan",
    reads=own_keys("baichuan-inc/Baichuan2-7B-Chat modeling_baichuan.py"),
    tensors=Plain(frame=EVERYWHERE, names=fused("self_attn", "W_pack", "o_proj"), heads=unshared_heads),
)
lineage("bitnet", block=Plain(qkv_bias=BIAS, o_bias=BIAS, more=_sub_norms))
lineage("diffllama", block=Plain(qkv_bias=BIAS, o_bias=BIAS, more=_lambdas))
lineage(
    "openelm",
    reads=CustomType("apple/OpenELM-270M configuration_openelm.py, modeling_openelm.py"),
    layers=openelm_layers,
)
lineage(
    "plamo",
    reads=CustomType("pfnet/plamo-13b modeling_plamo.py", defaults={"n_shared_head": 8}),
    layers=plamo_layers,
)
lineage("emu3_text_model", "molmo2_text", "moshi", "cosmos3_edge_text", "git", layers=plain_decoder)
lineage("kyutai_speech_to_text", layers=Recipe(ATTENTION, one_kind))
lineage("pp_formulanet_text", layers=bart_like_layers)
lineage(
    "persimmon",
    block=Plain(
        frame=Frame(final_norm="model.final_layernorm", norm=LAYER),
        norm=LAYER,
        names=fused("self_attn", "query_key_value", "dense"),
        heads=unshared_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
        more=_persimmon_norms,
    ),
)
lineage("fuyu", tower=_fuyu)
lineage(
    "stablelm", block=Plain(frame=Frame(everywhere=True, norm=LAYER), norm=LAYER, qkv_bias="use_qkv_bias")
)
lineage("idefics3", "smolvlm", tower=_idefics)
lineage("xverse", reads=own_keys("xverse/XVERSE-13B-Chat modeling_xverse.py"))
lineage("solar", reads=CustomType(VLLM_MODELS + "solar.py"), layers=solar_layers, tensors=LLAMA)
lineage("telechat", reads=own_keys(VLLM_MODELS + "telechat2.py", GPT2_NAMES), tensors=telechat_tensors)
lineage(
    "telechat3",
    reads=own_keys_grouped(VLLM_MODELS + "registry.py (TeleChat3ForCausalLM is read as Llama)"),
    tensors=LLAMA,
)
lineage("teleflm", "TeleFLM", reads=own_keys_grouped(VLLM_MODELS + "teleflm.py"), tensors=LLAMA)
lineage("jais", reads=own_keys("core42/jais-13b modeling_jais.py", GPT2_NAMES))
lineage("Yi", reads=own_keys("01-ai/Yi-6B (first release) modeling_yi.py"))
lineage(
    "stablelm_epoch",
    reads=copy_of("stablelm", "stabilityai/stablelm-3b-4e1t (first release)", inherits=False),
)
lineage("NVLM_D", reads=wrapper_of(VLLM_MODELS + "nvlm_d.py", "llm_config", "qwen2"))
lineage("h2ovl_chat", reads=wrapper_of(VLLM_MODELS + "h2ovl.py", "llm_config"))
lineage("skywork_chat", reads=wrapper_of(VLLM_MODELS + "skyworkr1v.py", "llm_config"))
lineage("ovis", reads=wrapper_of(VLLM_CONFIGS + "ovis.py", "llm_config"))
lineage("ovis2_5", reads=wrapper_of(VLLM_MODELS + "ovis2_5.py", "llm_config"))
lineage("ultravox", reads=wrapper_of(VLLM_CONFIGS + "ultravox.py"))
