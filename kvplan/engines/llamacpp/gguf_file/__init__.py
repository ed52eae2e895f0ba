"""The tensors of a GGUF file: names, types, and what llama-quantize makes of them."""
