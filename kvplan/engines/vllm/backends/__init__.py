"""Attention backends and kernels: which a layer gets on a GPU, and the block sizes that each takes."""
