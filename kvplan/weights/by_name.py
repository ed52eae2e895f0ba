"""How a tensor is divided, told from its name and shape: for checkpoints whose config has no inventory rule.

Source of the table: the column and row parallel layers of vllm-project/vllm vllm/model_executor/models/
(0.32) under the names that their checkpoints use.
"""

from __future__ import annotations

import re

from kvplan.dtypes import Packing
from kvplan.errors import RefusedError
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import ceil_div, round_up
from kvplan.weights.inventory import Role
from kvplan.weights.parts import TOWER_NAME, part_of
from kvplan.weights.ranks import Parallel, stage_layers
from kvplan.weights.stored import (
    DRAFT_NAME,
    DROPPED_NAME,
    EXPERT_NAME,
    LAYER_NAME,
    Checkpoint,
    Stored,
    end_kind,
)

DIVIDED = frozenset(
    "q_proj qkv_proj query_key_value wqkv wq_b c_attn w_pack q_b_proj kv_b_proj gate_proj up_proj "
    "gate_up_proj w1 w3 fc1 fc_in c_fc dense_h_to_4h input_linear in_proj in_proj_qkvz in_proj_qkv "
    "in_proj_z in_proj_ba in_proj_a in_proj_b o_proj wo dense down_proj w2 fc2 fc_out c_proj "
    "dense_4h_to_h output_linear out_proj conv1d a_log d dt_bias dt_proj x_proj sinks "
    "attention_sink_bias g_proj linear_fc1 linear_fc2 qkv proj wo_a wo_b attn_sink q_conv1d "
    "k_conv1d v_conv1d f_b_proj b_proj g_b_proj up down gate_up fc0 q o wi wi_0 wi_1 "
    "linear_x linear_y linear_out conv_1d recurrent_param".split()
)
KV_DIVIDED = frozenset({"k_proj", "v_proj", "key", "value", "k", "v", "wk", "wv"})
WHOLE = regex(
    r"norm|layernorm|(^|\.)ln(_\w+)?$|gate$|router|q_a_proj|kv_a_proj|wq_a|wkv$|f_a_proj|g_a_proj|indexer|"
    r"e_score_correction|position|patch|conv1$|conv2$|altup|laurel|multi_modal_projector$|relative_attention_bias|scale$|embeddings?$|tid2eid|hc_"
)
_SUFFIX = regex(
    r"\.(?:weight|bias|qweight|qzeros|scales|g_idx|weight_scale(?:_inv|_2)?|input_scale|weight_packed|"
    r"weight_shape|weight_global_scale|input_global_scale|weight_zero_point|weight\.\w+)$"
)
_ROLES = {"embedding": Role.EMBEDDING, "head": Role.HEAD}
UNKNOWN_SHARE = 1000
"""Tensors that no rule knows may make up one part in so many; they are counted whole on every GPU."""


@record()
class Shape:
    """Facts that the names do not hold: layers, KV heads, whether head and embedding are one."""

    num_layers: int
    num_kv_heads: int
    tied: bool


def module_of(name: str) -> str:
    """The module's own path: ``…self_attn.q_proj`` for ``…self_attn.q_proj.weight``."""
    return _SUFFIX.sub("", name)


def bytes_by_name(
    checkpoint: Checkpoint, shape: Shape, parallel: Parallel, dtype: Packing
) -> tuple[tuple[int, ...], int]:
    """Bytes on the fullest rank of each stage, and the drafts'.

    Raises RefusedError(cannot-shard).
    """
    if parallel.redundant_experts:
        raise RefusedError(
            "cannot-shard",
            "how large one expert is, and so its copies, is not known without the model's tensors",
            help="give the weights of one GPU yourself: --weights 15GiB",
        )
    stages = parallel.pipeline_parallel_size
    firsts = _first_layers(stage_layers(shape.num_layers, stages))
    totals, drafts, unknown = [0] * stages, 0, 0
    names: list[str] = []
    for tensor in checkpoint.tensors:
        if DROPPED_NAME.search(tensor.name):
            continue
        layer, tower = LAYER_NAME.search(tensor.name), TOWER_NAME.search(tensor.name)
        if DRAFT_NAME.search(tensor.name) or (layer and not tower and int(layer[1]) >= shape.num_layers):
            drafts += tensor.loaded_bytes(dtype)
            continue
        size, known = _on_rank(tensor, shape, parallel, dtype)
        if not known:
            unknown += size
            names.append(tensor.name)
        for stage in _stages(tensor.name, layer, tower is not None, firsts, shape):
            totals[stage] += size
    if unknown * UNKNOWN_SHARE > sum(totals) and parallel.expert_ways > 1:
        raise RefusedError(
            "cannot-shard",
            f"it is not known how {names[0]} and {len(names) - 1} more tensors are divided among GPUs",
            help="give the weights of one GPU yourself: --weights 15GiB",
        )
    return tuple(totals), drafts


def _first_layers(counts: tuple[int, ...]) -> list[int]:
    firsts, start = [], 0
    for count in counts:
        firsts.append(start)
        start += count
    return firsts


def _stages(
    name: str, layer: re.Match[str] | None, tower: bool, firsts: list[int], shape: Shape
) -> list[int]:
    last = len(firsts) - 1
    if tower:
        return list(range(last + 1))
    if layer:
        return [max(stage for stage, first in enumerate(firsts) if first <= int(layer[1]))]
    kind = end_kind(name)
    if kind == "embedding":
        return sorted({0, last}) if shape.tied else [0]
    if kind == "head":
        return [] if shape.tied else [last]
    return [last]


def _on_rank(tensor: Stored, shape: Shape, parallel: Parallel, dtype: Packing) -> tuple[int, bool]:
    """Bytes on one rank, and whether a rule says so."""
    size = tensor.loaded_bytes(dtype)
    kind = (
        "rest" if LAYER_NAME.search(tensor.name) or TOWER_NAME.search(tensor.name) else end_kind(tensor.name)
    )
    tp = parallel.ways(part_of(module_of(tensor.name), _ROLES.get(kind, Role.OTHER)))
    if kind in ("embedding", "head") and tensor.shape:
        rows = tensor.shape[0]
        padded = round_up(rows, parallel.vocabulary_multiple)
        return ceil_div(size * padded, max(rows, 1) * tp), True
    if EXPERT_NAME.search(tensor.name):
        return ceil_div(size, parallel.expert_ways), True
    module = module_of(tensor.name)
    own = module.rpartition(".")[2].lower()
    if tensor.elements <= 8 or (own in KV_DIVIDED and tp > shape.num_kv_heads):
        return ceil_div(size, min(tp, shape.num_kv_heads)) if own in KV_DIVIDED else size, True
    if own in KV_DIVIDED or (own in DIVIDED and "indexer" not in module):
        return ceil_div(size, tp), True
    return size, bool(WHOLE.search(module.lower())) or len(tensor.shape) < 2
