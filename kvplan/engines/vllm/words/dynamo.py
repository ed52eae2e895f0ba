"""Dynamo's worker of vLLM: those of AsyncEngineArgs, and Dynamo's own in the place of the server's."""

from __future__ import annotations

from kvplan.engines.dynamo import DECODE, PARSERS, PREFILL, Worker

WORKER = Worker(
    "vllm-runtime",
    ("python3", "-m", "dynamo.vllm"),
    "--model",
    legacy=((PREFILL, "--is-prefill-worker"), (DECODE, "--is-decode-worker")),
    sides=("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'),
    renamed=PARSERS,
)
