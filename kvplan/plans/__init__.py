"""What a capacity plan says, what is found wrong with it, and what a measurement proved. Values only."""

from __future__ import annotations
