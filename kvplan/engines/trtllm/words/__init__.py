"""What TensorRT-LLM reads and prints: arguments, flags, log lines."""
