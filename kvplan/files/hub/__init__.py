"""The Hugging Face hub: config files and headers, never code (extra ``hf``)."""

from __future__ import annotations
