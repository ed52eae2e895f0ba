"""The interface of transformers' server: arguments, flags, log lines."""
