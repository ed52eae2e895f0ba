"""MLX prints no setting."""

from __future__ import annotations

NAMES: dict[str, str] = {}
"""Setting as printed → setting, or own option."""
