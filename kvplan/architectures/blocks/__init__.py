"""Shapes that many lineages share: what a layer keeps and which tensors it has."""
