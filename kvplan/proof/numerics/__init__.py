"""The error of a KV format: K and V stored and read back as engines do, and attention over them (torch)."""
