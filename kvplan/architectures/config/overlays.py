"""Keys that change the layers whatever rule made them: attention sinks, and K and V shared between layers."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.config.view import ConfigView
from kvplan.families import FullAttention, Part, SharedKv, SlidingWindow
from kvplan.model import Layer


def with_overlays(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """The layers after every overlay. Raises KvplanError(bad-config) for a value out of range."""
    return with_attention_sinks(view, with_shared_layers(view, layers))


def with_attention_sinks(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """StreamingLLM: attention_sink_size first and attention_sink_window_size newest tokens are kept.

    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (arXiv 2309.17453);
    key names of tomaarsen/attention_sinks.
    """
    if not (view.given("attention_sink_size") and view.given("attention_sink_window_size")):
        return layers
    sinks = view.integer("attention_sink_size", lowest=0)
    window = view.integer("attention_sink_window_size")

    def streamed(part: FullAttention) -> Part:
        return SlidingWindow(part.num_kv_heads, part.head_dim, window, part.v_head_dim, sinks)

    return [_changed(layer, streamed) for layer in layers]


def with_shared_layers(view: ConfigView, layers: list[Layer]) -> list[Layer]:
    """Cross-layer attention (Hunyuan): of cla_share_factor neighbours only the first keeps K and V.

    The transformers classes ignore the key and keep K and V in every layer (models/hunyuan_v1_dense,
    models/hunyuan_v1_moe). Source: Brandon et al. (arXiv 2405.12981); tencent/Tencent-Hunyuan-Large
    modeling_hunyuan.py.
    """
    if not (view.model_type.startswith("hunyuan") and view.flag("use_cla")):
        return layers
    share = view.integer("cla_share_factor")

    def shared(part: FullAttention) -> Part:
        return SharedKv(part.num_kv_heads, part.head_dim)

    return [layer if index % share == 0 else _changed(layer, shared) for index, layer in enumerate(layers)]


def _changed(layer: Layer, change: Callable[[FullAttention], Part]) -> Layer:
    return Layer(tuple(change(part) if isinstance(part, FullAttention) else part for part in layer.parts))
