"""JetMoE: experts of attention and of perceptrons.

Source: huggingface/transformers 5.23.0 models/jetmoe.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import uniform
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import experts, linear, norms, router, vector, whole
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Role, Split


def jetmoe_layers(view: ConfigView) -> list[Layer]:
    return uniform(view, FullAttention(view.integer("num_key_value_heads"), view.integer("kv_channels")))


def jetmoe_tensors(view: ConfigView) -> Decoder:
    """Experts of attention (query and output by expert, one key and value for all) and of perceptrons."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    kv, width = int(view.integer("num_key_value_heads")), int(view.integer("kv_channels"))
    count, inner = int(view.integer("num_local_experts")), int(view.integer("intermediate_size"))
    stack = Dim("num_local_experts", count, Split.EXPERTS)
    heads = (Dim("num_key_value_heads", kv, Split.EXPERT_WIDTH), whole("kv_channels", width))
    path = "self_attention.experts"
    layer = linear(f"{path}.input_linear", heads, model, role=Role.EXPERT, stack=stack)
    layer += linear(f"{path}.output_linear", model, heads, role=Role.EXPERT, stack=stack)
    layer += router(f"{path}.router.layer", count, hidden) + vector(f"{path}.bias", model)
    both = (
        whole("key and value", 2),
        Dim("num_key_value_heads", kv, Split.HEADS_KEPT),
        whole("kv_channels", width),
    )
    layer += linear("self_attention.kv_proj", both, model)
    layer += experts("mlp", count, hidden, inner)
    layer += router("mlp.router.layer", count, hidden) + vector("mlp.bias", model)
    return Decoder(Frame(), (layer + norms(TWO_NORMS, model),) * int(view.num_layers()))


lineage("jetmoe", layers=jetmoe_layers, tensors=jetmoe_tensors)
