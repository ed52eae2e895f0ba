"""How TGI is called: huggingface/text-generation-inference 3.3 launcher/src/main.rs."""

from __future__ import annotations

from kvplan.engines.launch import VISIBLE, Serve, Server
from kvplan.record import Json

_VARIABLES = """num_shard quantize max_total_tokens max_batch_prefill_tokens max_batch_size
max_concurrent_requests cuda_memory_fraction kv_cache_dtype dtype speculate sharded max_batch_total_tokens
rope_scaling rope_factor lora_adapters cuda_graphs"""


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """``--sharded`` without --num-shard: false takes one GPU; else as many as it sees (find_num_shards)."""
    said, seen = str(options.get("--sharded", "")).lower(), options.get(VISIBLE)
    if "num_shard" not in serve:
        if said == "false":
            serve["num_shard"] = 1
        elif seen is not None:
            serve["num_shard"] = seen
        elif said == "true":
            return ("--sharded true (as many shards as GPUs are seen: --num-shard says how many)",)
    return () if said in ("", "true", "false") else (f"--sharded {said}",)


SERVER = Server(
    "tgi",
    starts=(("text-generation-launcher",),),
    model=("--model-id",),
    images=("text-generation-inference",),
    tagged=("text-generation-inference",),
    translate=translate,
    translated=("--sharded",),
    ignored=(
        ("--max-batch-total-tokens", "TGI 3 takes what its warm-up measures (backends/v3/src/lib.rs)"),
        ("--cuda-graphs", "graphs are captured in the tenth that the pool leaves alone"),
    ),
    environment=(
        ("MODEL_ID", "model_id"),
        ("ATTENTION", "tgi_attention"),
        *((one.upper(), one) for one in _VARIABLES.split()),
    ),
)
