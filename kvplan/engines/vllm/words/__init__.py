"""What vLLM reads and prints: arguments, flags, log lines, metrics."""
