"""Model cards: finding, reading, writing and checking them."""

from __future__ import annotations
