"""GGUF files: headers and tensors, never the weights themselves."""

from __future__ import annotations
