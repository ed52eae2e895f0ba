"""vLLM's interface: arguments, flags, log lines, metrics."""
