"""PLaMo 3: windows of their own in every layer, four norms.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/plamo3.py; pfnet/plamo-3-nict-8b-base
modeling_plamo.py. Where ``sliding_window`` is a list, vLLM calls it interleaved_sliding_window
(vllm/config/model.py).
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import entries
from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads
from kvplan.architectures.blocks.plain import EVERYWHERE, Plain
from kvplan.architectures.config.custom_types import VLLM_MODELS, CustomType
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.registry import lineage
from kvplan.families import FullAttention, SlidingWindow
from kvplan.model import Layer

WINDOW_KEYS = ("interleaved_sliding_window", "sliding_window")


def plamo3_layers(view: ConfigView) -> list[Layer]:
    """A window a layer, or null for full attention."""
    kv, width, count = num_kv_heads(view), head_dim(view), view.num_layers()
    key = next((key for key in WINDOW_KEYS if isinstance(view.raw.get(key), list)), None)
    if key is None:
        raise view.missing(WINDOW_KEYS[0])
    whole = Layer((FullAttention(kv, width),))
    return [
        whole
        if window is None
        else Layer((SlidingWindow(kv, width, check_integer(window, f"{view.path}{key}")),))
        for window in entries(view, key, count)
    ]


lineage(
    "plamo3",
    reads=CustomType(VLLM_MODELS + "plamo3.py"),
    layers=plamo3_layers,
    tensors=Plain(
        frame=EVERYWHERE,
        norms=("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm"),
        qk_norm="head",
    ),
)
