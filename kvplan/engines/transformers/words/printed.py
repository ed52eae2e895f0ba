"""The printed lines of transformers' continuous batching as settings."""

from __future__ import annotations

NAMES = {"max_batch_tokens": "max_num_batched_tokens"}
"""Setting as printed → setting, or own option."""
