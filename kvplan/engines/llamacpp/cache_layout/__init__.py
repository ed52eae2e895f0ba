"""The tensors of llama.cpp's caches, and the contexts and requests that memory holds."""
