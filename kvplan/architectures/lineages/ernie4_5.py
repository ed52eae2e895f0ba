"""ERNIE 4.5, dense and with experts.

Sources: huggingface/transformers 5.23.0 models/{ernie4_5,ernie4_5_moe}; vllm-project/vllm 0.32
vllm/model_executor/models/ernie45_moe.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import FLOAT32, Moe, shared_by_count
from kvplan.architectures.blocks.plain import Plain
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import Forward, Joins, Prediction
from kvplan.architectures.registry import lineage


def _interval(view: ConfigView, index: int) -> bool:
    """ERNIE: every moe_layer_interval-th layer between moe_layer_start_index and moe_layer_end_index."""
    every = view.optional_integer("moe_layer_interval", default=1) or 1
    first = view.optional_integer("moe_layer_start_index", default=1, lowest=0) or 0
    last = view.optional_integer("moe_layer_end_index", default=-1, lowest=-1)
    end = int(view.num_layers()) - 1 if last is None or last == -1 else int(last)
    return (index + 1) % every == 0 and first <= index <= end


lineage("ernie4_5", block=Plain(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"))
lineage(
    "ernie4_5_moe",
    block=Plain(
        frame=Frame(head_bias="use_bias"),
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        moe=Moe(
            count=("moe_num_experts",),
            gate_dtype=FLOAT32,
            layer_is_sparse=_interval,
            correction="mlp.gate.moe_statics.e_score_correction_bias",
            shared=shared_by_count("moe_num_shared_experts"),
            shared_bias="use_bias",
        ),
    ),
    prediction=Prediction(
        forward=Forward.DENSE,
        joins=Joins(("mtp_emb_norm", "mtp_hidden_norm"), ("mtp_linear_proj",)),
        path="model.mtp_block.{i}",
    ),
)
lineage("ernie4_5_vl_moe_text", layers=plain_decoder)
