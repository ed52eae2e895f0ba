"""Plans checked against what the engine would do with them: findings, figures, suggested fixes."""

from __future__ import annotations

from kvplan.checking.check import check_plan

__all__ = ["check_plan"]
