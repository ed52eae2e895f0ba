"""TensorRT-LLM's interface: arguments, flags, log lines."""
