"""How transformers' server is called: huggingface/transformers 5.24.0 src/transformers/cli/serve.py."""

from __future__ import annotations

from kvplan.engines.launch import Server

SERVER = Server(
    "transformers",
    starts=(("transformers", "serve"),),
    model=("--force-model",),
    images=("transformers-pytorch-gpu",),
    tagged=("transformers-pytorch-gpu",),
    positional=True,
)
