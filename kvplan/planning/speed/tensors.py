"""Which of a model's tensors a step reads, and as what."""

from __future__ import annotations

import re

from kvplan.weights.inventory import Inventory, Role, Split, Tensor

_MLP = re.compile(
    r"mlp|experts|feed_forward|ffn|moe|block_sparse|(^|\.)(fc1|fc2|gate_up_proj|down_proj|w2)\b"
)


def logit_tensors(inventory: Inventory) -> tuple[Tensor, ...]:
    """What makes logits: the output head, or the embedding where they are one."""
    ends = [entry.tensor for entry in inventory.ends]
    heads = tuple(tensor for tensor in ends if tensor.role is Role.HEAD)
    if heads:
        return heads
    return tuple(
        tensor
        for tensor in ends
        if tensor.role is Role.EMBEDDING and any(dim.split is Split.VOCABULARY for dim in tensor.rows)
    )[:1]


def routed_experts(tensor: Tensor) -> int:
    """How many routed experts the tensor holds, 0 for one that every token uses."""
    if tensor.role is not Role.EXPERT:
        return 0
    return next((dim.value for dim in tensor.stack if dim.split is Split.EXPERTS), 0)


def has_experts(tensors: tuple[Tensor, ...]) -> bool:
    return any(routed_experts(tensor) for tensor in tensors)


def has_mlp(tensors: tuple[Tensor, ...]) -> bool:
    return any(tensor.role is not Role.OTHER and _MLP.search(tensor.name) for tensor in tensors)
