"""Which GPUs, how many, and with which flags: every candidate judged by the engine's own rules. Pure."""

from __future__ import annotations
