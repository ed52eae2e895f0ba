"""What SGLang reads and prints: arguments, flags, log lines, metrics, /server_info."""
