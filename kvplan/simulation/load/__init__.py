"""The requests to be served: cut from a trace, generated, or kept at a number under way."""
