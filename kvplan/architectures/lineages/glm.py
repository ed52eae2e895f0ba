"""GLM 4, 4.5 and 5: dense, experts, latent attention with an indexer.

Sources: huggingface/transformers 5.23.0 models/{glm,glm4,glm4_moe,glm4_moe_lite,glm_moe_dsa};
vllm-project/vllm 0.32 vllm/model_executor/models/deepseek_v2.py, glm4_moe.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import one_kind, plain_decoder
from kvplan.architectures.blocks.latent import (
    DSA,
    GLM_LITE_MOE,
    MLA,
    deepseek_tensors,
    indexer_types,
    latent_decoder,
    without_indexer,
)
from kvplan.architectures.blocks.moe import GLM_MOE
from kvplan.architectures.blocks.plain import BIAS, JOINT_MLP, TWO_NORMS, Plain
from kvplan.architectures.blocks.recipe import INDEXED, Recipe, all_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.record import replace

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
