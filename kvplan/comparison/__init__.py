"""An engine's report of its cache next to its rules' prediction: figures, rows, and reasons for a difference.

Called ``comparison`` because ``kvplan.compare`` is the function.
"""

from __future__ import annotations

from kvplan.comparison.compare import TOLERANCE, compare
from kvplan.comparison.results import ComparedRow, Comparison, Verdict

__all__ = ["TOLERANCE", "ComparedRow", "Comparison", "Verdict", "compare"]
