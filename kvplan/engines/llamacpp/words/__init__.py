"""llama.cpp's interface: arguments, flags, log lines, metrics."""
