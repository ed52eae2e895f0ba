"""Weight formats that none of the engines loads: which they are, and how a config says so."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.record import Json

FOREIGN = {"mlx": "MLX's format, which MLX alone loads", "exl": "ExLlama's format, which ExLlama alone loads"}
"""A method's name → the format in words."""
FOREIGN_WEIGHTS = "foreign-weights"
"""The error of such a checkpoint: whatever its files hold, none of the engines loads them."""
_OF_MLX = ("bits", "group_size")
_OF_GPTQ = frozenset(("quant_algo", "desc_act", "sym", "damp_percent", "static_groups", "zero_point"))
"""Keys of files that are older than `quant_method`, of other programs."""


def foreign_method(config: Json) -> str | None:
    """The method of a config of such a checkpoint, None for any other.

    MLX writes no method: bits and group_size, a mode, and what differs by the module's path (a table or
    a yes or no). Source: ml-explore/mlx-lm mlx_lm/utils.py, quantize_model (0.30.1).
    """
    for key in ("quantization_config", "quantization"):
        stated = config.get(key)
        if not isinstance(stated, Mapping):
            continue
        method = stated.get("quant_method")
        if isinstance(method, str) and method:
            return "exl" if method.lower().startswith("exl") else method if method in FOREIGN else None
        if all(type(stated.get(name)) is int for name in _OF_MLX) and not _OF_GPTQ.intersection(stated):
            return "mlx"
    return None
