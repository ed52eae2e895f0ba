"""What transformers' server reads and prints: arguments, flags, log lines."""
