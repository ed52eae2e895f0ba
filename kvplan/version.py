"""The version of kvplan."""

__version__ = "0.1.0"
