"""GPU memory of a start beside the pools: adapters, ranks that share weights, prompt graphs."""
