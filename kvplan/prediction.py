"""Multi-token-prediction (MTP, NextN) layers by model type: how many, built like which layer, joined by what.

One row a lineage; the cache (`kvplan.architectures.config.drafts`) and the tensors
(`kvplan.architectures.lineages.tensors.drafts`) are both made of it, and engines ask it which types they
build. Which key counts them, and what each module
holds: vllm-project/vllm 0.32 vllm/config/speculative.py (hf_config_override),
vllm/model_executor/models/*_mtp.py and vllm/models/*/nvidia/mtp.py. Embedding and output head are the
target's (vllm/v1/spec_decode/llm_base_proposer.py, _maybe_share_embeddings and _maybe_share_lm_head).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from kvplan.families import Kind
from kvplan.record import record


class Forward(str, Enum):
    """The feed-forward part of a prediction layer."""

    LIKE = "that of the model's last layer with the same attention"
    DENSE = "a perceptron of intermediate_size"


class Project(str, Enum):
    """How the projection of embedding and hidden state is kept."""

    PLAIN = "whole on every rank, never quantised"
    REPLICATED = "whole on every rank, quantised with the model"
    DIVIDED = "its outputs divided, quantised with the model"


@record()
class Joins:
    """What stands around a prediction layer.

    norms: each as wide as the hidden state. projections: names; together they read the embedding and the
    hidden state. once: there is one for all prediction layers. streams: hyper-connections' head as well.
    """

    norms: tuple[str, ...]
    projections: tuple[str, ...] = ("eh_proj",)
    project: Project = Project.PLAIN
    once: bool = False
    streams: bool = False


@record()
class Prediction:
    """The prediction layers of a lineage.

    keys: how many (the first that is there). default: without a key.
    most: what the engine builds at most.
    kinds: the attention of the model's layers that they are built like.
    window_only: compressed attention without what it compresses.
    without: texts in the paths of that layer's tensors which these layers lack (LongCat's second half).
    types: keys of a list that names each one's attention, behind the model's own or types_from_start.
    pattern: a key whose letters name the blocks of one prediction step.
    path: of a layer's modules in the checkpoint, {n} counted on from the model's layers and {i} from 0.
    own_head: each has an output head of its own.
    vllm: the architectures for which vLLM builds them, None for all.
    unknown: why the tensors are not described.
    """

    keys: tuple[str, ...] = ("num_nextn_predict_layers",)
    default: int = 0
    most: int | None = None
    kinds: tuple[Kind, ...] = (Kind.FULL, Kind.MLA)
    window_only: bool = False
    without: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    types_from_start: bool = False
    pattern: str = ""
    forward: Forward = Forward.LIKE
    joins: Joins = Joins(("enorm", "hnorm", "shared_head.norm"))
    path: str = "{layers}.{n}"
    own_head: bool = False
    vllm: tuple[str, ...] | None = None
    unknown: str = ""

    def built_by_vllm(self, architecture: str | None) -> bool:
        return self.vllm is None or architecture in self.vllm


_NO_MODULE = "no engine's source that was read builds them"
_NEW_LAYOUT = "a layout of its own, whose layers are not described either"
_FINAL = ("enorm", "hnorm", "final_layernorm")
_QWEN = Joins(("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), ("fc",), Project.DIVIDED, once=True)
_MTP = "mtp.layers.{i}"
_MODULES = ("num_mtp_modules", "num_nextn_predict_layers")
_HIDDEN_LAYERS = ("mtp_num_hidden_layers",)
_WINDOWED = (Kind.SLIDING, Kind.MLA)
_MIMO_V2 = Prediction(
    default=1,
    most=1,
    kinds=_WINDOWED,
    forward=Forward.DENSE,
    joins=Joins(_FINAL),
    path="model.mtp.layers.{i}",
)
_EXAONE = Prediction(types=("mtp_layer_types", "layer_types"), types_from_start=True, joins=_QWEN, path=_MTP)
_MINIMAX_M3 = Prediction(_MODULES, joins=Joins(_FINAL, project=Project.REPLICATED), path=_MTP)
_LIKE_DEEPSEEK = (
    *("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe", "glm4_moe_lite", "glm_ocr_text"),
    "pangu_ultra_moe",
)

PREDICTION: dict[str, Prediction] = {
    **dict.fromkeys(_LIKE_DEEPSEEK, Prediction()),
    **dict.fromkeys(("kimi_k2", "glm4v_moe_text"), Prediction(vllm=())),
    "kimi_linear": Prediction(without=("_res_norm", "_res_proj"), vllm=("KimiK3ForConditionalGeneration",)),
    "mimo": Prediction(
        joins=Joins(("token_layernorm", "hidden_layernorm", "final_layernorm"), ("input_proj",)),
        path="model.mtp_layers.{i}",
    ),
    "ernie4_5_moe": Prediction(
        forward=Forward.DENSE,
        joins=Joins(("mtp_emb_norm", "mtp_hidden_norm"), ("mtp_linear_proj",)),
        path="model.mtp_block.{i}",
    ),
    "nemotron_h": Prediction(
        pattern="mtp_hybrid_override_pattern",
        joins=Joins(_FINAL, project=Project.DIVIDED),
        path=_MTP,
    ),
    **dict.fromkeys(("bailing_hybrid", "hy_v3"), Prediction(joins=Joins(_FINAL))),
    "exaone_moe": replace(_EXAONE, forward=Forward.DENSE),
    "exaone4": replace(_EXAONE, vllm=("Exaone4_5_ForConditionalGeneration",)),
    "step3p5": Prediction(types=("layer_types",), forward=Forward.DENSE, own_head=True),
    "deepseek_v4": Prediction(
        window_only=True,
        without=(".compressor.", ".indexer."),
        joins=Joins(
            ("enorm", "hnorm", "shared_head.norm"),
            ("e_proj", "h_proj"),
            Project.REPLICATED,
            streams=True,
        ),
        path="mtp.{i}",
    ),
    "qwen3_next": Prediction(default=1, joins=_QWEN, path=_MTP),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), Prediction(_HIDDEN_LAYERS, joins=_QWEN, path=_MTP)),
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), _MIMO_V2),
    "longcat_flash": Prediction(
        default=1,
        most=1,
        without=(".1.",),
        forward=Forward.DENSE,
        joins=Joins(_FINAL, project=Project.REPLICATED),
        path="model.mtp.layers.{i}",
    ),
    **dict.fromkeys(("minimax_m3", "minimax_m3_text", "minimax_m3_vl_text"), _MINIMAX_M3),
    "minimax_m2": Prediction(_MODULES, vllm=(), unknown=_NO_MODULE),
    "bailing_moe_v2": Prediction(vllm=(), unknown=_NO_MODULE),
    "hy_v4": Prediction(unknown=_NEW_LAYOUT),
    "glm5_next_text": Prediction(unknown=_NEW_LAYOUT),
    "qwen4_exp_text": Prediction((*_HIDDEN_LAYERS, "num_nextn_predict_layers"), unknown=_NEW_LAYOUT),
    "dots3_note_text": Prediction(default=1, kinds=_WINDOWED, unknown=_NEW_LAYOUT),
}
"""Model type of the text part → its prediction layers."""
