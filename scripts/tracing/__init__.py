"""vLLM's own model code run without a GPU, and what it keeps alive."""
