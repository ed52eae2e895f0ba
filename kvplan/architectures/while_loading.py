"""Quantisation of 16-bit weights as they load, and the modules that it leaves.

vllm-project/vllm model_executor/layers/quantization: fp8.py, bitsandbytes.py.
"""

from __future__ import annotations

from kvplan.model import Model
from kvplan.record import replace
from kvplan.weights.formats import FP8_TENSOR, bnb_4bit
from kvplan.weights.quantisation import Modules, Quantisation

FP8, BITSANDBYTES = "fp8", "bitsandbytes"
_METHODS = {
    FP8: Quantisation(FP8, FP8_TENSOR),
    BITSANDBYTES: Quantisation(BITSANDBYTES, bnb_4bit(double=False)),
}
_TOWERS = Modules(inside=("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."))
_OF_TRANSFORMERS = ("gemma3n", "qwen2_audio")
"""Model types whose towers are transformers' own modules, which no method knows (gemma3n_mm.py,
qwen2_audio.py)."""
_WHOLE = 64
"""Gemma 4's towers are quantised where these divide both of their widths (gemma4_mm.py,
quantizable, 0.24 to 0.33)."""


def while_loading(model: Model, quantization: str) -> Quantisation | None:
    """The method of that name, for a model; None for a word that names none."""
    method = _METHODS.get(quantization)
    if method is not None and _leaves_towers(model, quantization):
        return replace(method, rules=((_TOWERS, None), *method.rules))
    return method


def _leaves_towers(model: Model, quantization: str) -> bool:
    config = model.config or {}
    if config.get("model_type") in _OF_TRANSFORMERS:
        return True
    tower = config.get("vision_config")
    if config.get("model_type") != "gemma4" or quantization != FP8 or not isinstance(tower, dict):
        return False
    widths = (tower.get("hidden_size"), tower.get("intermediate_size"))
    return any(isinstance(width, int) and width % _WHOLE for width in widths)
