"""DeepSeek-V4.1: windowed layers, and groups of layers that read one source layer's compressed latents.

Source: vllm-project/vllm 0.33 vllm/transformers_utils/configs/deepseek_v41.py,
vllm/models/deepseek_v41/{attention,compressor}.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import window
from kvplan.architectures.blocks.recipe import Parts, index_list
from kvplan.architectures.config.custom_types import VLLM_CONFIGS, CustomType, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.families import CompressedAttention, SharedKv
from kvplan.model import Layer

RATES = (0, 1, 2)
"""Tokens of one compressed entry; 0: the layer sees its window only."""


def deepseek_v41_layers(view: ConfigView) -> list[Layer]:
    """compress_ratios has an entry a layer; kv_source_layer_ids keep what the layers above them read.

    Raises KvplanError(unknown-layer-type) for another ratio and for a layer without a source below it.
    """
    count = view.num_layers()
    ratios = index_list(view, "compress_ratios")
    if ratios is None:
        raise view.missing("compress_ratios")
    if len(ratios) < count:
        raise view.refuse("compress_ratios", f"{len(ratios)} entries for {count} layers")
    unknown = [ratio for ratio in ratios[:count] if ratio not in RATES]
    if unknown:
        raise view.refuse("compress_ratios", f"{unknown[0]} is none of 0, 1 and 2")
    sources = set(index_list(view, "kv_source_layer_ids") or ())
    layers = []
    for index, ratio in enumerate(ratios[:count]):
        if ratio and not any(source <= index for source in sources):
            raise view.refuse("kv_source_layer_ids", f"layer {index} has no source at or below it")
        layers.append(Layer(_parts(view, int(ratio) if index in sources else 0, reads=bool(ratio))))
    return layers


def _parts(view: ConfigView, rate: int, *, reads: bool) -> Parts:
    own = CompressedAttention(
        head_dim=view.integer("head_dim"),
        sliding_window=window(view),
        compress_rate=rate or None,
        index_head_dim=view.integer("index_head_dim") if rate else None,
        qk_rope_head_dim=view.integer("qk_rope_head_dim", lowest=0, highest=view.integer("head_dim") - 1),
        index_of_latent=True,
    )
    return (own,) if rate or not reads else (own, SharedKv())


lineage("deepseek_v41", reads=wrapper_of(VLLM_CONFIGS + "deepseek_v41.py", text_type="deepseek_v41_text"))
lineage(
    "deepseek_v41_text",
    reads=CustomType(VLLM_CONFIGS + "deepseek_v41.py"),
    layers=deepseek_v41_layers,
)
