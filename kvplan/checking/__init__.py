"""Plans held against what the engine would do with them: findings, figures, ways out."""

from __future__ import annotations

from kvplan.checking.check import check_plan
from kvplan.checking.paths import check_paths

__all__ = ["check_paths", "check_plan"]
