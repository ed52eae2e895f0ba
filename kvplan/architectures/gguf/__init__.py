"""The keys of a GGUF file (llama.cpp's format) become a Model. Pure: the header is read elsewhere."""
