"""The arguments of ``transformers serve``: huggingface/transformers 5.24.0 src/transformers/cli/serve.py."""

from __future__ import annotations

from kvplan.engines.command import Argument, EngineTable

_IN_PYTHON = "the server has no argument for it: ContinuousBatchingConfig({}=…) has"


TABLE = EngineTable(
    "transformers",
    ("transformers", "serve"),
    {
        "continuous_batching": Argument("--continuous-batching"),
        "attn_implementation": Argument("--attn-implementation"),
        "dtype": Argument("--dtype"),
        "block_size": Argument("--cb-block-size"),
        "num_gpu_blocks_override": Argument("--cb-num-blocks"),
        "max_num_batched_tokens": Argument("--cb-max-batch-tokens"),
        "max_memory_percent": Argument("--cb-max-memory-percent"),
        "use_cuda_graph": Argument("--cb-use-cuda-graph", off="--no-cb-use-cuda-graph"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "trust_remote_code": Argument("--trust-remote-code"),
    },
    {
        **{
            name: _IN_PYTHON.format(theirs)
            for name, theirs in (
                ("max_num_seqs", "max_requests_per_batch"),
                ("max_blocks_per_request", "max_blocks_per_request"),
                ("use_async_batching", "use_async_batching"),
                ("return_logprobs", "return_logprobs"),
                ("enable_prefix_caching", "allow_block_sharing"),
            )
        },
        "cache_implementation": "a served request has a dynamic cache, or continuous_batching its pool",
        "max_model_len": "a request may be as long as the model's positions",
        "kv_cache_memory": "say it in blocks: cb_num_blocks",
        "kv_cache_dtype": "the cache has the model's dtype",
        "tensor_parallel_size": "its memory over several GPUs is not known here",
        "pipeline_parallel_size": "it has no pipeline",
        "data_parallel_size": "start one server for each, with replicas",
        "quantization": "the checkpoint's own config decides it",
        "gpu_memory_utilization": "it is called max_memory_percent there and counts otherwise",
        "served_model_name": "the model is served under its own name",
        "revision": "name the revision behind the model: NAME@REVISION",
        "chat_template": "the tokenizer's own is used",
        "tool_call_parser": "the model's class decides it",
    },
    {},
)
