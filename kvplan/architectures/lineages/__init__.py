"""What each lineage of models has: layers and tensors."""
