"""Hyper-connections (mHC): what a layer has of them where several residual streams are mixed."""

from __future__ import annotations

from kvplan.architectures.blocks.parts import Tensors, vector, whole


def hyper_connections(streams: int, hidden: int) -> Tensors:
    """Mixing in and out around attention and feed-forward, in float32 and whole on every rank.

    Source: vllm-project/vllm 0.32 vllm/models/deepseek_v4/nvidia/model.py, glm5next/common/model.py.
    """
    mixed = whole("(2 + hc_mult) × hc_mult", (2 + streams) * streams)
    wide = whole("hc_mult × hidden_size", streams * hidden)
    made: Tensors = ()
    for part in ("attn", "ffn"):
        made += vector(f"hc_{part}_fn", mixed, wide, dtype="float32")
        made += vector(f"hc_{part}_base", mixed, dtype="float32")
        made += vector(f"hc_{part}_scale", whole("three", 3), dtype="float32")
    return made
