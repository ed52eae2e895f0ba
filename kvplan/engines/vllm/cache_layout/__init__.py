"""Layers, block sizes, groups, pages and blocks: vLLM's KV cache as its planner lays it out."""
