"""Strict YAML: one meaning for every word, a place for every value."""

from __future__ import annotations
