"""Every shape of vLLM's lines about memory, behind every prefix that has been seen."""

from __future__ import annotations

from kvplan.engines.observed import Observation
from kvplan.files.logs import parse_log
from tests.laws.sampling import for_each


def read(text: str) -> Observation:
    return parse_log([text.encode()], engine="vllm")


SHAPES = {
    # V0
    "Loading model weights took 3.2500 GB": {"weights_bytes": "3.2500 GiB"},
    "Model loading took 3.2500 GB and 4.125000 seconds": {"weights_bytes": "3.2500 GiB"},
    "# GPU blocks: 1,234, # CPU blocks: 56": {"num_blocks": "1,234", "host_blocks": "56"},
    "# cuda blocks: 1234, # CPU blocks: 56": {"num_blocks": "1234", "host_blocks": "56"},
    "# GPU blocks: 777": {"num_blocks": "777"},
    "Memory profiling results: total_gpu_memory=44.40GiB initial_memory_usage=3.50GiB peak_torch_memory=5.25GiB "
    "memory_usage_post_profile=3.75GiB non_torch_memory=0.25GiB kv_cache_size=34.46GiB gpu_memory_utilization=0.90": {
        "total_memory_bytes": "44.40 GiB",
        "peak_bytes": "5.25 GiB",
        "non_torch_bytes": "0.25 GiB",
        "available_kv_bytes": "34.46 GiB",
    },
    "the current vLLM instance can use total_gpu_memory (44.40GiB) x gpu_memory_utilization (0.90) = 39.96GiB": {
        "total_memory_bytes": "44.40 GiB",
        "requested_bytes": "39.96 GiB",
    },
    "model weights take 3.25GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 2.00GiB; "
    "the rest of the memory reserved for KV Cache is 34.46GiB.": {
        "weights_bytes": "3.25 GiB",
        "non_torch_bytes": "0.25 GiB",
        "activation_peak_bytes": "2.00 GiB",
        "available_kv_bytes": "34.46 GiB",
    },
    # V1
    "Model loading took 3.2500 GiB and 4.125000 seconds": {"weights_bytes": "3.2500 GiB"},
    "Model loading took 3.25 GiB memory and 4.125000 seconds": {"weights_bytes": "3.25 GiB"},
    "Available KV cache memory: 21.5 GiB": {"available_kv_bytes": "21.5 GiB"},
    "Available KV cache memory: -0.75 GiB (process-scoped)": {"available_kv_bytes": "-0.75 GiB"},
    "GPU KV cache size: 1,048,576 tokens": {"kv_tokens": "1,048,576"},
    "Maximum concurrency for 8,192 tokens per request: 128.00x": {
        "max_concurrency": "128.00",
        "max_concurrency_tokens": "8,192",
    },
    "CPU KV cache size: 4,096 tokens, Maximum concurrency for 2,048 tokens per request: 2.00x": {
        "kv_tokens": "4,096",
        "max_concurrency": "2.00",
        "max_concurrency_tokens": "2,048",
    },
    "Explicitly set (1.0/9.5) GiB for KV cache on node 0.": {
        "available_kv_bytes": "1.0 GiB",
        "total_memory_bytes": "9.5 GiB",
    },
    "Add 4 padding layers, may waste at most 7.50% KV cache memory": {
        "padding_layers": "4",
        "padding_waste_percent": "7.50",
    },
    "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.": {
        "block_size": "544"
    },
    "Padding mamba page size by 1.25% to ensure that mamba page size and attention page size are exactly equal.": {
        "mamba_padding_percent": "1.25"
    },
    "Encoder cache will be initialized with a budget of 4096 tokens, and profiled with 2 image items of the "
    "maximum feature size.": {"encoder_budget_tokens": "4096"},
    "Graph capturing finished in 11 secs, took 0.75 GiB": {"cuda_graph_bytes": "0.75 GiB"},
    "Estimated CUDA graph memory: 0.70 GiB total": {"cuda_graph_estimated_bytes": "0.70 GiB"},
    "CUDA graph pool memory: 0.75 GiB (actual), 0.7 GiB (estimated), difference: 0.05 GiB (6.7%).": {
        "cuda_graph_bytes": "0.75 GiB",
        "cuda_graph_estimated_bytes": "0.7 GiB",
    },
    "worker init memory snapshot: torch_peak=0.0GiB, free_memory=40.1GiB, total_memory=44.4GiB, "
    "cuda_memory=4.3GiB, torch_memory=0.0GiB, non_torch_memory=4.3GiB, timestamp=1.5": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
    },
    "worker init memory snapshot: MemorySnapshot(torch_peak=0.0GiB, torch_allocated=0.0GiB, free_memory=40.1GiB, "
    "total_memory=44.4GiB, NVIDIA L40S_memory=4.3GiB)": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
    },
    "worker requested memory: 39.96GiB": {"requested_bytes": "39.96 GiB"},
    "Initial free memory: 40.1 GiB; Requested memory: 0.900000 (util), 39.96 GiB": {
        "free_before_bytes": "40.1 GiB",
        "requested_bytes": "39.96 GiB",
    },
    "Free memory after profiling: 35.5 GiB (total), 31.1 GiB (within requested)": {
        "free_after_bytes": "35.5 GiB"
    },
    "Memory profiling takes 3.21 seconds. Total non KV cache memory: 5.5GiB; torch peak memory increase: 2.0GiB; "
    "non-torch forward increase memory: 0.25GiB; weights memory: 3.25GiB.": {
        "non_kv_bytes": "5.5 GiB",
        "activation_peak_bytes": "2.0 GiB",
        "non_torch_bytes": "0.25 GiB",
        "weights_bytes": "3.25 GiB",
    },
    "Memory profiling takes 3.21 seconds. Total non KV cache memory: 5.5GiB; torch peak memory increase: 2.0GiB; "
    "total consumed (from mem_get_info): 3.5GiB; weights memory: 3.25GiB.": {
        "consumed_bytes": "3.5 GiB",
        "weights_bytes": "3.25 GiB",
    },
    "Free memory on device (40.1/44.4 GiB) on startup. Desired GPU memory utilization is (0.9, 39.96 GiB). Actual "
    "usage is 3.25 GiB for weight, 2.0 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.75 GiB for "
    "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=36044079104` (33.57 GiB) to fit "
    "into requested memory, or `--kv-cache-memory=36194404352` (33.71 GiB) to fully utilize gpu memory. Current kv "
    "cache memory in use is 34.46 GiB.": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
        "requested_bytes": "39.96 GiB",
        "weights_bytes": "3.25 GiB",
        "activation_peak_bytes": "2.0 GiB",
        "non_torch_bytes": "0.25 GiB",
        "cuda_graph_bytes": "0.75 GiB",
        "suggested_kv_bytes": "36044079104 B",
        "largest_kv_bytes": "36194404352 B",
        "available_kv_bytes": "34.46 GiB",
    },
    "Replace gpu_memory_utilization config with `--kv-cache-memory=36044079104` to fit into requested memory, or "
    "`--kv-cache-memory=36194404352` to fully utilize gpu memory. Current kv cache memory in use is 37001234567 bytes.": {
        "suggested_kv_bytes": "36044079104 B",
        "largest_kv_bytes": "36194404352 B",
        "available_kv_bytes": "37001234567 B",
    },
    "Actual usage is 3.5 GiB for consumed memory (weights + non-torch), 2.0 GiB for peak activation, and 0.75 GiB for "
    "CUDAGraph memory.": {
        "consumed_bytes": "3.5 GiB",
        "transient_peak_bytes": "2.0 GiB",
        "cuda_graph_bytes": "0.75 GiB",
    },
    "Actual usage is 3.25 GiB for weight, 2.0 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.5 GiB for "
    "NPU graph memory.": {"cuda_graph_bytes": "0.5 GiB", "non_torch_bytes": "0.25 GiB"},
    "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9000 is "
    "equivalent to --gpu-memory-utilization=0.8842 without CUDA graph memory profiling.": {
        "equivalent_utilization": "0.8842"
    },
    # Intel
    "> Peak Allocated (Real Need) : 5.25 GB": {"peak_bytes": "5.25 GiB"},
    "> Model memory usage : 3.25 GB": {"weights_bytes": "3.25 GiB"},
}
PREFIXES = {
    "bare": "",
    "V0": "INFO 03-01 10:11:12 model_runner.py:1100] ",
    "V1": "(EngineCore_0 pid=4242) INFO 03-01 10:11:12 [gpu_worker.py:276] ",
    "debug": "(EngineCore_DP0 pid=4242) DEBUG 03-01 10:11:12 [v1/worker/gpu_worker.py:276] ",
    "colour": "\x1b[0;36m(EngineCore pid=4242)\x1b[0;0m \x1b[1;32mINFO\x1b[0m 03-01 10:11:12 [gpu_worker.py:276] ",
    "container": "web-1  | 2026-03-01T10:11:12.000000Z stderr F (Worker_TP0 pid=7) INFO 03-01 10:11:12 [x.py:2] ",
    "json": '{"log":"(Worker_TP0 pid=7) INFO 03-01 10:11:12 [x.py:2] ',
}


@for_each("prefix", PREFIXES.values(), ids=PREFIXES)
@for_each(("text", "figures"), SHAPES.items(), ids=range(len(SHAPES)))
@for_each("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_every_shape(text: str, figures: dict[str, str], prefix: str, end: str) -> None:
    observation = read(f"something else{end}{prefix}{text}{end}more{end}")
    for name, printed in figures.items():
        figure = observation.get(name)
        assert figure is not None, name
        assert figure.printed == printed
        assert figure.line == 2
