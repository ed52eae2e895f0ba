"""Multi-token-prediction (MTP, NextN) layers by model type: how many, built like which layer, joined by what.

One row per lineage (``registry.Lineage.prediction``), from which cache (`config.drafts`) and tensors
(`draft_tensors`) are made. Source: vllm-project/vllm 0.32 vllm/config/speculative.py (hf_config_override:
which key counts them), vllm/model_executor/models/*_mtp.py and vllm/models/*/nvidia/mtp.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kvplan.architectures.config.view import ConfigView
from kvplan.families import Kind
from kvplan.record import record
from kvplan.weights.inventory import Tensor


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
    """Tensors around a prediction layer.

    norms: each as wide as the hidden state. projections: names; together they read the embedding and the
    hidden state. once: there is one for all prediction layers. streams: hyper-connections' head as well.
    more: what else a config of the lineage gives them.
    """

    norms: tuple[str, ...]
    projections: tuple[str, ...] = ("eh_proj",)
    project: Project = Project.PLAIN
    once: bool = False
    streams: bool = False
    more: Callable[[ConfigView], tuple[Tensor, ...]] | None = None


@record()
class Prediction:
    """The prediction layers of a lineage."""

    keys: tuple[str, ...] = ("num_nextn_predict_layers",)
    """how many (the first that is there)"""
    default: int = 0
    """without a key"""
    most: int | None = None
    """what the engine builds at most"""
    kinds: tuple[Kind, ...] = (Kind.FULL, Kind.MLA)
    """the attention of the model's layers that they are built like"""
    window_only: bool = False
    """compressed attention without what it compresses"""
    without: tuple[str, ...] = ()
    """texts in the paths of that layer's tensors which these layers lack (LongCat's second half)"""
    types: tuple[str, ...] = ()
    """keys of a list that names each one's attention, behind the model's own or types_from_start"""
    types_from_start: bool = False
    pattern: str = ""
    """a key whose letters name the blocks of one prediction step"""
    forward: Forward = Forward.LIKE
    joins: Joins = Joins(("enorm", "hnorm", "shared_head.norm"))
    path: str = "{layers}.{n}"
    """of a layer's modules in the checkpoint, {n} counted on from the model's layers and {i} from 0"""
    own_head: bool = False
    """each has an output head of its own; else head and embedding are the target's
    (vllm/v1/spec_decode/llm_base_proposer.py, _maybe_share_embeddings and _maybe_share_lm_head)"""
    vllm: tuple[str, ...] | None = None
    """the architectures for which vLLM builds them, None for all"""
    unknown: str = ""
    """why the tensors are not described"""

    def built_by_vllm(self, architecture: str | None) -> bool:
        return self.vllm is None or architecture in self.vllm


NO_MODULE = "no engine's source that was read builds them"

NEW_LAYOUT = "a layout of its own, whose layers are not described either"

FINAL_NORMS = ("enorm", "hnorm", "final_layernorm")

QWEN_JOINS = Joins(
    ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), ("fc",), Project.DIVIDED, once=True
)

MTP_PATH = "mtp.layers.{i}"

MODULE_KEYS = ("num_mtp_modules", "num_nextn_predict_layers")

MTP_LAYER_KEYS = ("mtp_num_hidden_layers",)

WINDOWED_KINDS = (Kind.SLIDING, Kind.MLA)
