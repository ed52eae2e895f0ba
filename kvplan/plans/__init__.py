"""A capacity plan, its findings, and the proof of a measurement. Values only."""

from __future__ import annotations
