"""The encoders beside a decoder whose attention heads vLLM divides over the tensor-parallel ranks.

vllm-project/vllm 0.32, vllm/model_executor/models/: their attention calls ``dist_utils.divide(num_heads,
tp_size)`` or asserts ``num_heads % tp_size == 0``, and the server stops while it builds them. Serving text
alone (``--limit-mm-per-prompt`` of 0) does not help: the encoder is still built, on the meta device, before a
placeholder takes its place (interfaces.py, _mark_tower_model; utils.py, no_init_weights).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.model import Model
from kvplan.results import Refusal


def encoder_heads(model: Model, version: str) -> int:
    """The heads that every number of ranks must divide; 0: none that are known. Classes without
    `Encoder.heads` keep the encoder whole where it does not divide (intern_vit.py, kimi_k25_vit.py,
    muse_glimmer.py), never divide it (transformers' own of Gemma 3n and 4, interns1_vit.py, qwen2_audio.py,
    deepseek_vl2.py), or were not read, as were releases before 0.20."""
    encoder = class_of(model.architecture).main_encoder
    if not encoder.heads or not rules_of(version).encoder_heads_read:
        return 0
    if encoder.heads.startswith("="):
        return int(encoder.heads[1:])
    return next((heads for key in encoder.heads.split(",") if (heads := _stated(model.config, key))), 0)


def undivided_encoder(model: Model, tp: int, version: str, *, whole: bool) -> Refusal | None:
    """The refusal of an encoder whose heads do not divide over so many ranks; None where its config does not
    state them. whole: with --mm-encoder-tp-mode data."""
    heads = encoder_heads(model, version)
    if heads % tp == 0:
        return None
    row = class_of(model.architecture)
    if row.data_mode and whole:  # supports_encoder_tp_data
        return None
    ways = ("--mm-encoder-tp-mode data: the encoder whole on every GPU",) if row.data_mode else ()
    return Refusal(
        "tensor-parallel",
        f"{heads} attention heads of the {'audio' if row.hears_alone else 'vision'} encoder cannot be divided"
        f" over {tp} tensor-parallel ranks",
        help=ways,
    )


def _stated(config: Any, path: str) -> int | None:
    """The number at a dotted key, where it is one."""
    for key in path.split("."):
        if not isinstance(config, Mapping):
            return None
        config = config.get(key)
    return config if isinstance(config, int) and not isinstance(config, bool) and config > 0 else None
