"""MLX's language models (ml-explore/mlx-lm 0.32.2 on mlx 0.32.4): its caches were asked on a CPU."""
