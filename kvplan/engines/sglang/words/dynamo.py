"""Dynamo's worker of SGLang: ServerArgs, and Dynamo's own in the place of the server's parsers."""

from __future__ import annotations

from kvplan.engines.dynamo import PARSERS, Worker

WORKER = Worker(
    "sglang-runtime",
    ("python3", "-m", "dynamo.sglang"),
    "--model-path",
    sides=("--disaggregation-transfer-backend", "nixl"),
    renamed=PARSERS,
)
