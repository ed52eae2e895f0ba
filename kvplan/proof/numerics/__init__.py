"""What a KV format costs: K and V stored and read back as engines do, and attention over them (torch)."""
