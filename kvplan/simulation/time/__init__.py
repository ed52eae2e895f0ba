"""Shared by all simulated engines: requests as runs of blocks, step times, the timeline, results."""
