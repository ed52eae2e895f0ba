"""llama.cpp's compute buffer: the graph that it reserves for a micro-batch."""
