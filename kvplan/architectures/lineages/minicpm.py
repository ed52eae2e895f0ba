"""MiniCPM and MiniCPM3.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/minicpm.py; huggingface/transformers 5.23.0
models/minicpm3.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import one_kind
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import MLA, dense_mla_tensors
from kvplan.architectures.blocks.parts import attention, experts, mlp, norms, router, whole
from kvplan.architectures.blocks.plain import heads_of, hidden_size
from kvplan.architectures.blocks.recipe import Recipe
from kvplan.architectures.config.custom_types import VLLM_MODELS, own_keys, own_keys_grouped
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage


def minicpm_tensors(view: ConfigView) -> Decoder:
    """A Llama decoder, or one with experts as wide as intermediate_size."""
    hidden = hidden_size(view)
    number, width = (
        int(view.optional_integer("num_experts", default=0, lowest=0) or 0),
        int(view.integer("intermediate_size")),
    )
    forward = mlp("mlp", hidden, width)
    if number:
        forward = router("mlp.gate", number, hidden) + experts("mlp.experts", number, hidden, width)
    layer = attention(heads_of(view), hidden) + forward
    layer += norms(("input_layernorm", "post_attention_layernorm"), whole("hidden_size", hidden))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


lineage("minicpm", reads=own_keys(VLLM_MODELS + "minicpm.py"), tensors=minicpm_tensors)
lineage("minicpm3", layers=Recipe(MLA, one_kind), tensors=dense_mla_tensors)
lineage(
    "minicpmv",
    reads=own_keys_grouped(
        VLLM_MODELS + "minicpmv.py (Llama-3, Qwen2 and MiniCPM language models, keys at the top level)"
    ),
)
lineage("minicpmo", reads=own_keys_grouped(VLLM_MODELS + "minicpmo.py"))
