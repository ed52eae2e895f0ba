"""What an engine said of its cache beside what its rules say: figures, rows, and why they differ.

Called ``comparison`` because ``kvplan.compare`` is the function.
"""

from __future__ import annotations

from kvplan.comparison.compare import TOLERANCE, compare
from kvplan.comparison.results import ComparedRow, Comparison, Verdict

__all__ = ["TOLERANCE", "ComparedRow", "Comparison", "Verdict", "compare"]
