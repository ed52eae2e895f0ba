"""Step 1 to 3.7: windows with a head count of their own, a gate for each head, experts.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/step3p5.py, step3_text.py, checked against
huggingface/transformers 5.23.0 models/step3p7/modeling_step3p7.py, which names the same modules ``mlp.*``.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_layer, width_per_head
from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    LAYER,
    Heads,
    Tensors,
    attention,
    even,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import LLAMA, TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import FULL, Recipe, all_of
from kvplan.architectures.blocks.tower import (
    Raw,
    encoder_layer,
    placed,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.custom_types import (
    VLLM_CONFIGS,
    VLLM_MODELS,
    CustomType,
    copy_of,
    own_keys_grouped,
    wrapper_of,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import Forward, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Placed


def step3_text_layers(view: ConfigView) -> list[Layer]:
    """Step-3 (multi-matrix factorisation attention): one K and one V head of head_dim for all query heads.

    Source: vllm-project/vllm 0.32 vllm/model_executor/models/step3_text.py (num_kv_heads=1).
    """
    return every_layer(
        view, FullAttention(derived(1, "one KV head in every Step-3 layer"), width_per_head(view))
    )


def _without_draft_layers(view: ConfigView) -> ConfigView:
    """layer_types may end with entries of the multi-token-prediction layers."""
    given, count = view.sequence("layer_types"), view.num_layers()
    drafts = view.optional_integer("num_nextn_predict_layers", default=0, lowest=0) or 0
    if given is not None and len(given) == count + drafts:
        return view.with_values({"layer_types": given[:count]})
    return view


_STEP3P5 = Recipe(ATTENTION, all_of(FULL))

_EXPERTS = ("moe_num_experts", "n_routed_experts", "num_local_experts")

_KV = ("num_attention_groups", "num_key_value_heads")


def step3p5_tensors(view: ConfigView) -> Decoder:
    """Raises KvplanError(missing-key) where the config leaves out what the two libraries default apart:
    which layers have experts (moe_layers_enum) and whether heads are gated (use_head_wise_attn_gate).
    """
    hidden, count = hidden_size(view), int(view.num_layers())
    model = whole("hidden_size", hidden)
    width = int(view.integer("head_dim"))
    kinds = view.sequence("layer_types")
    if kinds is None or len(kinds) < count:
        raise view.missing("layer_types")
    mixers = {kind: _mixer(view, kind, width, hidden) for kind in dict.fromkeys(map(str, kinds[:count]))}
    sparse = _sparse_layers(view)
    dense = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    moe = _moe(view, hidden) if sparse else ()
    around = norms(TWO_NORMS, model)
    return Decoder(
        Frame(),
        tuple(
            mixers[str(kinds[index])] + (moe if index in sparse else dense) + around for index in range(count)
        ),
    )


def _mixer(view: ConfigView, kind: str, width: int, hidden: int) -> Tensors:
    """Attention of one kind of layer; attention_other_setting overrides the heads of the kind it names."""
    heads, kv, own = int(view.integer("num_attention_heads")), int(view.integer(*_KV)), width
    if view.get("attention_other_setting"):
        other = view.inner("attention_other_setting")
        if other.get("attention_type") == kind:
            heads = int(other.optional_integer("num_attention_heads") or heads)
            kv = int(other.optional_integer("num_attention_groups") or kv)
            own = int(other.optional_integer("head_dim") or width)
    made = attention(
        Heads(heads, kv, own, own), hidden, qkv_bias=bool(view.get("attention_bias")), qk_norm="head"
    )
    if not view.given("use_head_wise_attn_gate"):
        raise view.missing("use_head_wise_attn_gate")
    if view.flag("use_head_wise_attn_gate"):
        made += linear("self_attn.g_proj", even("num_attention_heads", heads), whole("hidden_size", hidden))
    return made


def _sparse_layers(view: ConfigView) -> set[int]:
    """moe_layers_enum, which has to be there."""
    found = layer_numbers(view, "moe_layers_enum")
    if found is None:
        raise view.missing("moe_layers_enum")
    return found


def layer_numbers(view: ConfigView, key: str) -> set[int] | None:
    """Numbers between commas, or a list of them."""
    given = view.get(key)
    words = given.split(",") if isinstance(given, str) else view.sequence(key)
    if words is None:
        return None
    if not all(str(word).strip().isdecimal() for word in words):
        raise view.refuse(key, "is not a list of layer numbers")
    return {int(str(word)) for word in words}


def _moe(view: ConfigView, hidden: int) -> Tensors:
    """A router in float32 with a bias, experts, and one shared expert."""
    number = int(view.integer(*_EXPERTS))
    made = router("moe.gate", number, hidden, dtype="float32", correction="moe.router_bias")
    made += experts("moe.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    return made + mlp("moe.share_expert", hidden, int(view.integer("share_expert_dim")))


def step3_text_tensors(view: ConfigView) -> Decoder:
    """Queries through share_q_dim; queries' latent, key and value whole on every rank."""
    hidden, heads = hidden_size(view), int(view.integer("num_attention_heads"))
    model, width = whole("hidden_size", hidden), whole("head_dim", int(view.integer("head_dim")))
    shared = whole("share_q_dim", int(view.optional_integer("share_q_dim") or width.value))
    count = int(view.num_layers())
    own: Tensors = ()
    for name, rows in (("q_proj", shared), ("k_proj", width), ("v_proj", width)):
        own += linear(f"self_attn.{name}", rows, model)
    own += norm("self_attn.inter_norm", shared)
    own += linear("self_attn.wq", (even("num_attention_heads", heads), width), shared)
    own += linear("self_attn.o_proj", model, (even("num_attention_heads", heads), width))
    own += norms(TWO_NORMS, model)
    number = int(view.integer("moe_num_experts"))
    moe = router("moe.gate", number, hidden)
    moe += experts("moe.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    moe += mlp("share_expert", hidden, int(view.integer("share_expert_dim")))
    dense = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    sparse = set(range(1, count)) if view.get("moe_layers_enum") is None else _sparse_layers(view)
    layers = (own + (moe if index in sparse else dense) for index in range(count))
    return Decoder(Frame(), tuple(layers))


# One KV head, whatever num_attention_groups says (Step3TextAttention is built with num_kv_heads=1).
lineage(
    "step3_text",
    reads=CustomType(
        VLLM_CONFIGS + "step3_vl.py; " + VLLM_MODELS + "step3_text.py",
        defaults={"hidden_size": 7168, "num_attention_heads": 64, "num_hidden_layers": 61, "head_dim": 256},
    ),
    layers=step3_text_layers,
    tensors=step3_text_tensors,
)
lineage(
    "step3p5",
    layers=lambda view: _STEP3P5(_without_draft_layers(view)),
    tensors=step3p5_tensors,
    prediction=Prediction(types=("layer_types",), forward=Forward.DENSE, own_head=True),
)


def _perception(raw: Raw, view: ConfigView) -> list[Placed]:
    """The perception encoder of Step 3.7, two convolutions that halve its grid, and a projection."""
    vision, path = vision_view(raw), "vision_model"
    width = int(vision.integer("hidden_size"))
    model, double, wide = (
        whole("vision hidden_size", width),
        whole("2 × vision hidden_size", 2 * width),
        whole("4 × vision hidden_size", 4 * width),
    )
    layer = encoder_layer(
        width,
        int(vision.integer("num_attention_heads")),
        int(vision.integer("intermediate_size")),
        norm_names=("layernorm_before", "layernorm_after"),
    )
    layer += vector("lambda_1", model) + vector("lambda_2", model)
    patch, nine = int(vision.integer("patch_size")), whole("3 × 3", 9)
    positions = (int(vision.integer("image_size")) // patch) ** 2
    made = vector(f"{path}.embeddings.patch_embedding", model, whole("3 × patch_size²", 3 * patch**2))
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", positions), model)
    made += norm(f"{path}.pre_layernorm", model, kind=LAYER)
    made += repeated(f"{path}.layers", layer, tower_layers(vision))
    made += vector(f"{path}.downsampler1", double, model, nine) + vector(f"{path}.downsampler1.bias", double)
    made += vector(f"{path}.downsampler2", wide, double, nine) + vector(f"{path}.downsampler2.bias", wide)
    bias = bool(raw.get("projector_bias"))
    return placed(
        made + linear("multi_modal_projector", whole("hidden_size", hidden_size(view)), wide, bias=bias)
    )


lineage("step3p7", tower=_perception)
lineage("step3p7_text", tensors=step3p5_tensors)
lineage(
    "step1",
    reads=own_keys_grouped(VLLM_MODELS + "step1.py", {"num_attention_groups": "num_key_value_heads"}),
    tensors=LLAMA,
)
lineage("step3", reads=copy_of("step3_text", VLLM_MODELS + "step3_text.py", inherits=False))
lineage("step3_vl", reads=wrapper_of(VLLM_CONFIGS + "step3_vl.py", text_type="step3_text"))
