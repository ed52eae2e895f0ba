"""Plan files, traces, fleets and receipts: YAML and JSON in, values out."""

from __future__ import annotations
