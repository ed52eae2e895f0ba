"""The scheduler: blocks that a request holds over time, and how many requests run at once."""
