"""GGUF files: headers and tensors, never the weights themselves (extra ``gguf``)."""

from __future__ import annotations
