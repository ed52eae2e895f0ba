"""What fits on one GPU: weights, activations, graphs and the rest, and the cache that is left."""

from __future__ import annotations
