"""A plan against the budget and its receipt: what holds, what does not, and what would."""

from __future__ import annotations
