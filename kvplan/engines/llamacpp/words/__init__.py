"""What llama.cpp reads and prints: arguments, flags, log lines, metrics."""
