"""A prefix cache on a trace without time: hit rates by size and by order of eviction."""
