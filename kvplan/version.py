"""The version of kvplan."""

__version__ = "0.2.0"
