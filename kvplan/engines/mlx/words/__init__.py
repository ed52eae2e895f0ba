"""The interface of mlx_lm's server: arguments, flags, how it is called."""
