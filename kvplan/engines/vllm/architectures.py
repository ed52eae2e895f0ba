"""Which architectures vLLM builds: model_executor/models/registry.py of vllm-project/vllm 0.8.5 to 0.33."""

from __future__ import annotations

from kvplan.engines.supported import classes

GENERATING = classes("vllm", "generates")
"""Classes that generate text, with and without other inputs, and the releases that have them."""
POOLING = classes("vllm", "pools")
"""Classes that pool: embeddings, rewards, classification."""
NO_PIPELINE = frozenset(classes("vllm", "one_stage"))
"""Generating classes without SupportsPP."""
THROUGH_TRANSFORMERS = frozenset(classes("vllm", "through_transformers"))
"""transformers 5.23 classes that vLLM runs itself where every layer is attention (is_backend_compatible)."""
