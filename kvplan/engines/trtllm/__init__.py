"""TensorRT-LLM: how it lays a cache out, what it takes of a GPU, its words."""
