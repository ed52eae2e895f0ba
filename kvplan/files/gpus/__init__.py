"""GPU files by name, and the GPUs of this machine."""

from __future__ import annotations
