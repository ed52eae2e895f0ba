"""Starts that vLLM refuses, with its reason."""
