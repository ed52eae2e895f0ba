"""Pangu Ultra MoE: DeepSeek-V3's layers under another name (`config.custom_types`)."""

from __future__ import annotations

from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import lineage

lineage("pangu_ultra_moe", prediction=Prediction())
