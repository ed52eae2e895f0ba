"""Which part of a model a tensor belongs to: engines may divide each part among other ranks.

Told from the module's name as the checkpoint has it, relative to its block or whole. Sources of the names:
transformers' modules, as vllm-project/vllm and sgl-project/sglang load them.
"""

from __future__ import annotations

from enum import Enum

from kvplan.later import regex
from kvplan.weights.inventory import Role, Tensor

TOWER_NAME = regex(
    r"^(?:model\.)?encoder\.|(?:^|\.)(?:visual|vision\w*|audio\w*|mm_projector|multi_modal_projector|embed_(?:vision|audio))\."
)
NGRAM_TABLE = "ple.ple_embedding.ngram_embedding"
"""A layer's table of hashed n-grams, which engines may keep in host memory."""
EXPERTS = "experts"
PACKED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
"""Checkpoint's module → the engines' module that holds it together with others."""
_SHARED = regex(r"shared?_experts?(?:\.|_|$)|shared_mlp")
_FORWARD = regex(
    r"(?:^|\.)(?:mlps?|mlp_block|feed_forward|ffn|block_sparse_moe|moe|experts|DenseReluDense|fc1|fc2)(?:\.|$)"
    r"|(?:^|\.)mixer\.(?:gate|gate_proj|up_proj|down_proj|experts)(?:\.|$)"
)


class Part(str, Enum):
    """ATTENTION: everything in a layer that is no perceptron (states and convolutions too).

    DENSE: perceptrons and routers. SHARED: the experts of every token. EMBEDDING, HEAD: the vocabulary's two
    tables; a tied one is EMBEDDING. TOWER: encoders of images and sound. Routed experts are divided by
    their own rule, whatever their part.
    """

    ATTENTION = "attention"
    DENSE = "dense"
    SHARED = "shared experts"
    EMBEDDING = "embedding"
    HEAD = "head"
    TOWER = "tower"


def part_of(name: str, role: Role = Role.OTHER) -> Part:
    """The part of a module by its name; a table of the vocabulary by its role."""
    if role is Role.EMBEDDING:
        return Part.EMBEDDING
    if role is Role.HEAD:
        return Part.HEAD
    if TOWER_NAME.search(f"{name}."):
        return Part.TOWER
    if _SHARED.search(name):
        return Part.SHARED
    return Part.DENSE if _FORWARD.search(name) else Part.ATTENTION


def module_of(tensor: Tensor) -> str:
    """The engine's name of the module that holds a tensor of a layer."""
    if tensor.role is Role.EXPERT:
        return EXPERTS
    leaf = tensor.name.rpartition(".")[2]
    return PACKED.get(leaf, leaf)
