"""llama.cpp's own fitting on GPUs that only say how large they are: the program and its files."""
