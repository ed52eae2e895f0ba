"""How TGI is called: huggingface/text-generation-inference 3.3 launcher/src/main.rs."""

from __future__ import annotations

from kvplan.engines.launch import Server

SERVER = Server(
    "tgi",
    starts=(("text-generation-launcher",),),
    model=("--model-id",),
    images=("text-generation-inference",),
    tagged=("text-generation-inference",),
    environment=(("MODEL_ID", "model"), ("NUM_SHARD", "num_shard"), ("ATTENTION", "tgi_attention")),
)
