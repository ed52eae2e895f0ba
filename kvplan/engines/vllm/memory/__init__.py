"""GPU and host memory of a start: weights, the profile run's peak, CUDA graphs, workspaces."""
