"""GLM 4, 4.5 and 5: dense, experts, latent attention with an indexer.

Sources: huggingface/transformers 5.23.0 models/{glm,glm4,glm4_moe,glm4_moe_lite,glm_moe_dsa,glm5_next};
vllm-project/vllm 0.32 vllm/model_executor/models/deepseek_v2.py, glm4_moe.py.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.blocks.decoder import one_kind, plain_decoder
from kvplan.architectures.blocks.latent import (
    DSA,
    GLM_LITE_MOE,
    MLA,
    deepseek_tensors,
    indexer_types,
    latent,
    latent_decoder,
    mla,
    without_indexer,
)
from kvplan.architectures.blocks.moe import GLM_MOE
from kvplan.architectures.blocks.plain import BIAS, JOINT_MLP, TWO_NORMS, Plain
from kvplan.architectures.blocks.recipe import FULL, INDEXED, LINEAR, Parts, Recipe, all_of, by_index
from kvplan.architectures.blocks.state_space import kimi_delta_part
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import NEW_LAYOUT, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import SparseIndexer


def _pooled_indexer(view: ConfigView) -> Parts:
    """Each token's index entry is a key, a gate of the same width and a flag (models/glm5_next)."""
    width = derived(2 * view.integer("index_head_dim") + 1, "2 * index_head_dim + 1 (key, gate, flag)")
    return (mla(view), SparseIndexer(width, kpool=view.integer("index_kpool")))


GLM4_ROW = Plain(
    qkv_bias=BIAS, mlp_names=JOINT_MLP, norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
)


def glm_lite_tensors(view: ConfigView) -> Decoder:
    """The same with GLM's router: float32 and always corrected."""
    return latent_decoder(view, GLM_LITE_MOE)


lineage("glm", block=Plain(qkv_bias="attention_bias", mlp_names=JOINT_MLP))
lineage("glm4", block=GLM4_ROW)
lineage(
    "glm4_moe",
    block=Plain(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE),
    prediction=Prediction(),
)
lineage("glm4_moe_lite", layers=Recipe(MLA, one_kind), tensors=glm_lite_tensors, prediction=Prediction())
lineage(
    "glm4v_moe_text",
    block=Plain(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE),
    prediction=Prediction(vllm=()),
)
lineage("glm4v_text", block=replace(GLM4_ROW, qkv_bias=True))
lineage(
    "glm5_next_text",
    layers=Recipe(
        {FULL: latent, INDEXED: _pooled_indexer, LINEAR: kimi_delta_part},
        by_index(lambda i, n: INDEXED if i % 4 == 3 else LINEAR),
        adjust=lambda view, kinds: [INDEXED if kind == FULL else kind for kind in kinds],
        sharing=lambda view, kinds: without_indexer(view, kinds, indexer_types(view, len(kinds))),
    ),
    prediction=Prediction(unknown=NEW_LAYOUT),
)
lineage("glm_image_text", layers=plain_decoder)
lineage(
    "glm_moe_dsa",
    layers=Recipe(
        DSA,
        all_of(INDEXED),
        sharing=lambda view, kinds: without_indexer(view, kinds, indexer_types(view, len(kinds))),
    ),
    tensors=deepseek_tensors,
    prediction=Prediction(),
)
lineage("glm_ocr_text", layers=plain_decoder, prediction=Prediction())
