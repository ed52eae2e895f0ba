"""What vLLM's compiled forward pass keeps alive at its peak, per token.

Read off the model classes of vLLM 0.32 run on the meta device with attention opaque and pointwise chains
fused: the peak lies in one of two places. In the perceptron: gate, up and their product beside the hidden
states. In attention: q, k and v as one product gives them, q and k rotated, the result, beside the hidden
states. So

    forward = tokens · max(3 · mlp / tp + copies · hidden, 3 · (q + kv) / tp + (copies − 1) · hidden) ·
    element.

Of a model with experts the perceptron is the widest that is no routed expert: its first dense layers, shared
experts, or none; routed experts have workspaces of their own (`expert_run`). Those of Nemotron 3 Super and
Ultra and of Kimi K3 work on a narrower latent (models/nemotron_h.py, moe_hidden_size; the transform runs
before rows are sent to other ranks, fused_moe/runner/moe_runner.py), and NemotronH's have no gate
(activation_without_mul). Both are read off the tensors; vLLM 0.19 … 0.33.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.architectures.weights import sources_of
from kvplan.engines.vllm.multimodal import has_encoder
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.units import ceil_div
from kvplan.weights.inventory import Inventory, Role
from kvplan.weights.parts import Part, part_of


@lru_cache(maxsize=1024)
def served_shape(model: Model, element_bytes: int) -> Shape:
    """The widths of a model as its layers are built: of attention, and of what is no routed expert."""
    shape = replace(shape_of(model, element_bytes), attention_width=attention_width(model))
    shape = replace(shape, is_multimodal=shape.is_multimodal or has_encoder(model))
    if not shape.experts_per_token:
        return shape
    try:
        inventory = sources_of(model).inventory
    except KvplanError:
        return shape
    if inventory is None:
        return shape
    hidden, ungated = routed_width(inventory)
    dense = dense_width(inventory, shape.hidden_size)
    return replace(shape, mlp_width=dense, expert_hidden=hidden, ungated=ungated)


def routed_width(inventory: Inventory) -> tuple[int, bool]:
    """(what routed experts give back, whether none of them has a gate); (0, False) where there are none."""
    experts = [t for block in inventory.layers for t in block.tensors if t.role is Role.EXPERT]
    out = (t.rows for t in experts if t.name.endswith("down_proj"))
    hidden = max((_product(rows) for rows in out), default=0)
    return hidden, bool(experts) and not any("gate" in t.name.rpartition(".experts.")[2] for t in experts)


def attention_width(model: Model) -> int:
    """Elements of q and k of one token in the widest layer; 0 where no layer has K and V of its own."""
    widths = [0]
    for run in model.runs:
        for part in run.layer.parts:
            heads, dim = getattr(part, "num_kv_heads", None), getattr(part, "head_dim", None)
            if isinstance(heads, int) and isinstance(dim, int):
                widths.append((heads + model.num_attention_heads) * dim)
    return max(widths)


def dense_width(inventory: Inventory, hidden: int) -> int:
    """The widest perceptron outside the routed experts, between the hidden states: 0 where there is none."""
    widest = 0
    for block in inventory.layers:
        for tensor in block.tensors:
            if tensor.role is not Role.LINEAR or part_of(tensor.name) not in (Part.DENSE, Part.SHARED):
                continue
            rows, columns = (_product(dims) for dims in (tensor.rows, tensor.columns))
            if columns == hidden:
                widest = max(widest, rows // 2 if "gate_up" in tensor.name else rows)
    return widest


def _product(dims: tuple[object, ...]) -> int:
    found = 1
    for dim in dims:
        found *= int(getattr(dim, "value", 1))
    return found


def forward_bytes(shape: Shape, *, tokens: int, tp: int, copies_milli: int) -> int:
    """The peak of one forward pass on a rank of ``tp``, bytes. copies_milli: hidden states in thousandths."""
    hidden = tokens * shape.hidden_size * shape.element_bytes
    a_width = 3 * tokens * shape.element_bytes
    perceptron = a_width * ceil_div(shape.mlp_width, tp) + hidden * copies_milli // 1000
    attention = a_width * ceil_div(shape.attention_width, tp) + hidden * max(0, copies_milli - 1000) // 1000
    return max(perceptron, attention)
