"""What TensorRT-LLM prints, as settings."""

from __future__ import annotations

NAMES = {"tokens_per_block": "block_size"}
"""Setting as printed → setting, or own option."""
PEAK = True
"""The log prints the peak of the whole start: the sum of the budget's lines."""
