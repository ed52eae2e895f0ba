"""Hugging Face transformers: the caches of its classes, and the pool of its continuous batching."""
