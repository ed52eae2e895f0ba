"""Running servers: metrics pages, what they print, and which model and GPU that names."""

from __future__ import annotations
