"""Kimi K2, Kimi Linear and K3 (Kimi delta attention), and their vision tower.

Sources: vllm-project/vllm 0.32 vllm/models/kimi_k3/nvidia/model.py, vllm/model_executor/models/kimi_k25.py;
huggingface/transformers 5.23.0 models/kimi_linear.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvplan.architectures.blocks.decoder import one_kind
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.latent import MLA, deepseek_tensors, mla_attention
from kvplan.architectures.blocks.moe import after_first
from kvplan.architectures.blocks.parts import (
    LAYER,
    RMS,
    Tensors,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Recipe, index_list
from kvplan.architectures.blocks.state_space import kimi_delta, kimi_delta_part
from kvplan.architectures.blocks.tower import Raw, encoder_layer, placed, repeated, tower_layers, vision_view
from kvplan.architectures.config.custom_types import VLLM, VLLM_CONFIGS, copy_of, wrapper_of
from kvplan.architectures.config.view import MAX_SIDE, ConfigView, check_integer
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.errors import KvplanError
from kvplan.weights.inventory import Place, Placed, Split


def _kimi_linear(view: ConfigView, count: int) -> list[str]:
    """full_attn_layers and kda_layers count from 1 and together name every layer."""
    own = view.inner("linear_attn_config")
    full, linear = index_list(own, "full_attn_layers", lowest=1), index_list(own, "kda_layers", lowest=1)
    if full is None or linear is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(count)]
    kinds = {**dict.fromkeys(full, FULL), **dict.fromkeys(linear, LINEAR)}
    if set(kinds) != set(range(1, count + 1)):
        raise view.refuse(
            "linear_attn_config", f"full_attn_layers and kda_layers do not name the {count} layers once each"
        )
    return [kinds[index] for index in range(1, count + 1)]


KIMI_LEAST_WIDTH = 256


def _kda(view: ConfigView) -> dict[str, Any]:
    settings = view.mapping("linear_attn_config")
    if settings is None:
        raise view.missing("linear_attn_config")
    return settings


def _kimi_moe(view: ConfigView, hidden: int) -> Tensors:
    """Experts, behind a projection to routed_expert_hidden_size where there is one."""
    path = "block_sparse_moe"
    count, width = int(view.integer("num_experts")), int(view.integer("moe_intermediate_size"))
    made = router(f"{path}.gate", count, hidden, correction=f"{path}.gate.e_score_correction_bias")
    inner = int(view.optional_integer("routed_expert_hidden_size") or hidden)
    if inner != hidden:
        model, narrow = whole("hidden_size", hidden), whole("routed_expert_hidden_size", inner)
        made += linear(f"{path}.routed_expert_down_proj", narrow, model)
        if view.flag("latent_moe_use_norm"):
            made += norm(f"{path}.routed_expert_norm", narrow)
        made += linear(f"{path}.routed_expert_up_proj", model, narrow)
    least = int(view.optional_integer("min_moe_intermediate_per_partition") or KIMI_LEAST_WIDTH)
    made += experts(f"{path}.experts", count, inner, width, least=least)
    shared = view.optional_integer("num_shared_experts", default=0, lowest=0)
    return made + (
        mlp(f"{path}.shared_experts", hidden, width * int(shared), split=Split.SHARED_EXPERT)
        if shared
        else ()
    )


def _kimi_extra(view: ConfigView) -> list[Placed]:
    if view.get("attn_res_block_size") is None:
        return []
    hidden = whole("hidden_size", hidden_size(view))
    return at(
        Place.LAST, norm("model.output_attn_res_norm", hidden) + vector("model.output_attn_res_proj", hidden)
    )


def kimi_tensors(view: ConfigView) -> Decoder:
    """Kimi delta attention with MLA layers between, experts from first_k_dense_replace on."""
    hidden, count, settings = hidden_size(view), int(view.num_layers()), _kda(view)
    kda = {index for index, kind in enumerate(_kimi_linear(view, count)) if kind == LINEAR}
    where = f"{view.path}linear_attn_config."
    model = whole("hidden_size", hidden)
    around = norms(TWO_NORMS, model)
    if view.get("attn_res_block_size") is not None:
        around += norms(("self_attention_res_norm", "mlp_res_norm"), model)
        around += vector("self_attention_res_proj", model) + vector("mlp_res_proj", model)

    wide = int(view.integer("intermediate_size"))

    @lru_cache(maxsize=8)
    def layer(delta: bool, sparse: bool) -> Tensors:
        if delta:
            mixer = kimi_delta(
                hidden,
                check_integer(settings.get("num_heads"), f"{where}num_heads"),
                check_integer(settings.get("head_dim"), f"{where}head_dim"),
                check_integer(settings.get("short_conv_kernel_size"), f"{where}short_conv_kernel_size"),
                full_gate=bool(settings.get("use_full_rank_gate")),
            )
        else:
            mixer = mla_attention(view, gate=view.flag("mla_use_output_gate"))
        forward = _kimi_moe(view, hidden) if sparse else mlp("mlp", hidden, wide, split=Split.SHARED_EXPERT)
        return mixer + forward + around

    layers = tuple(layer(index in kda, after_first(view, index)) for index in range(count))
    return Decoder(Frame(extra=_kimi_extra), layers)


def _kimi(raw: Raw, view: ConfigView) -> list[Placed]:
    """MoonViT with learnt positions; a projector that merges patches, whole on every rank.

    Kimi K3 (merge type patchmergerv2): RMS norms, no biases, attention narrower or wider than the tower.
    """
    vision = vision_view(raw)
    kind = RMS if vision.get("norm_type") == "rmsnorm" else LAYER
    bias = vision.flag("attn_bias", default=True), vision.flag("linear_bias", default=True)
    hidden, heads = int(vision.integer("vt_hidden_size")), int(vision.integer("vt_num_attention_heads"))
    inner = int(vision.optional_integer("qkv_hidden_size") or hidden)
    model, patch = whole("vt_hidden_size", hidden), int(vision.integer("patch_size"))
    if bias[0] != bias[1]:
        raise KvplanError("no-weights", "vision_config: attn_bias and linear_bias differ, which is not known")
    layer = encoder_layer(
        hidden,
        heads,
        int(vision.integer("vt_intermediate_size")),
        width=inner // heads,
        bias=bias[0],
        kind=kind,
        names=("wqkv", "wqkv", "wqkv", "wo"),
        mlp_names=("", "mlp.fc0", "mlp.fc1"),
        norm_names=("norm0", "norm1"),
    )
    made = vector(
        "vision_tower.patch_embed.proj", model, whole("channels", 3), whole("patch_size²", patch**2)
    )
    if vision.flag("patch_embed_proj_bias", default=True):
        made += vector("vision_tower.patch_embed.proj.bias", model)
    rows = int(vision.integer("init_pos_emb_height")) * int(vision.integer("init_pos_emb_width"))
    made += vector("vision_tower.patch_embed.pos_emb", whole("positions", rows), model)
    made += repeated("vision_tower.encoder.blocks", layer, tower_layers(vision, "vt_num_hidden_layers"))
    made += norm("vision_tower.encoder.final_layernorm", model, kind=kind)
    return placed(made + _kimi_projector(vision, view))


def _kimi_projector(vision: ConfigView, view: ConfigView) -> Tensors:
    sides = vision.sequence("merge_kernel_size") or [2, 2]
    if len(sides) != 2:
        raise KvplanError("bad-config", f"vision_config.merge_kernel_size has {len(sides)} entries, not two")
    sides = [check_integer(side, "vision_config.merge_kernel_size", 1, MAX_SIDE) for side in sides]
    width = int(vision.optional_integer("mm_hidden_size") or vision.integer("vt_hidden_size"))
    merged = whole("merged width", width * sides[0] * sides[1])
    text, path = whole("hidden_size", hidden_size(view)), "mm_projector"
    kind = vision.get("mm_projector_type", default="patchmerger")
    if kind == "patchmerger":
        made = norm(f"{path}.pre_norm", whole("mm_hidden_size", width), kind=LAYER)
        made += linear(f"{path}.linear_1", merged, merged, bias=True)
        return made + linear(f"{path}.linear_2", text, merged, bias=True)
    if kind == "patchmergerv2":
        made = linear(f"{path}.linear_1", merged, merged) + linear(f"{path}.linear_2", text, merged)
        return made + norm(f"{path}.post_norm", text)
    raise KvplanError("no-weights", f"vision_config.mm_projector_type {kind!r} is not known")


lineage(
    "kimi_k2",
    reads=copy_of("deepseek_v3", VLLM + "transformers_utils/config.py (kimi_k2 is read by DeepseekV3Config)"),
    layers=Recipe(MLA, one_kind),
    tensors=deepseek_tensors,
    prediction=Prediction(vllm=()),
)
lineage("kimi_k25", tower=_kimi)
lineage("kimi_k3", reads=wrapper_of(VLLM_CONFIGS + "kimi_k3.py", text_type="kimi_linear"), tower=_kimi)
lineage(
    "kimi_linear",
    layers=Recipe({**MLA, LINEAR: kimi_delta_part}, _kimi_linear),
    tensors=kimi_tensors,
    prediction=Prediction(without=("_res_norm", "_res_proj"), vllm=("KimiK3ForConditionalGeneration",)),
)
lineage("kimi_vl", reads=wrapper_of(VLLM_CONFIGS + "kimi_vl.py", text_type="deepseek_v3"))
