"""The Hugging Face hub by the standard library alone: configs, headers and lists, never code."""

from __future__ import annotations
