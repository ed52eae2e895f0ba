"""Allocate a real paged cache, use it, and compare with the prediction (extra ``gpu``)."""

from __future__ import annotations
