"""The short help (``-h``) of a command with many options: at most fifteen of them, a line each, and three
examples.

``--help-all`` shows the rest. A command that is not here has few options, and shows them all.
"""

from __future__ import annotations

from kvplan.named import NamedTuple


class Everyday(NamedTuple):
    """options: name in the table, and a few words; examples: command lines and what they are for."""

    options: tuple[tuple[str, str], ...]
    examples: tuple[tuple[str, str], ...]


_TOKENS = ("tokens", "tokens of one request: 32k; or 8k,32k")
_ONE_LENGTH = ("tokens", "tokens of one request: 32k")
_REQUESTS = ("requests", "requests at once")
_GPU = ("gpu", "h100, 8xh100, 80GiB (kvplan list gpus)")
_TP = ("tensor_parallel_size", "tensor parallel size")
_PP = ("pipeline_parallel_size", "pipeline parallel size")
_DP = ("data_parallel_size", "data parallel size")
_ENGINE = ("engine", "vllm@0.19, sglang, trtllm, llamacpp, all")
_ONE_ENGINE = ("engine", "vllm@0.19, sglang, trtllm, llamacpp")
_CACHE = ("kv_cache_dtype", "format of the cache: fp8, nvfp4, q8_0")
_QUANTIZATION = ("quantization", "of weights: fp8; of a GGUF build: q4_k_m")
_LENGTH = ("max_model_len", "longest request that may come, or auto")
_SEQS = ("max_num_seqs", "most requests in one step")
_BATCH = ("max_num_batched_tokens", "most tokens in one step")
_SHARE = ("gpu_memory_utilization", "of the memory, such as 0.9")
_DRAFTS = ("speculative", "speculation: mtp:1, draft_model:5")
_LORA = ("enable_lora", "room for adapters")
_VERBOSE = ("verbose", "everything: settings, layers, sources")
_JSON = ("json", "only JSON on stdout")
_ENV = ("environment", "overlay of a plan file's environment")
_DEPLOYMENT = (_GPU, _TP, _PP, _ENGINE, _CACHE, _QUANTIZATION, _LENGTH, _SEQS, _BATCH, _SHARE)

EVERYDAY: dict[str, Everyday] = {
    "size": Everyday(
        (
            _TOKENS,
            _REQUESTS,
            *_DEPLOYMENT[:-2],
            _SHARE,
            ("kv_cache_memory", "a cache of this size instead of a GPU"),
            ("show", "lengths, least or formats"),
            _VERBOSE,
            _JSON,
        ),
        (
            ("kvplan size qwen3-32b --gpu h200 -t 8k,32k", "how many requests fit"),
            ("kvplan size ./config.json --engine all", "bytes under each engine"),
            ("kvplan size plan.yaml", "a plan as it is deployed"),
        ),
    ),
    "explain": Everyday(
        (
            *(_ONE_LENGTH, _GPU, _TP, _PP, _DP, _ONE_ENGINE, _CACHE),
            *(_LENGTH, _BATCH, _DRAFTS, _ENV, _VERBOSE, _JSON),
        ),
        (
            ("kvplan explain llama-3.1-8b", "its terms, multiplied out"),
            ("kvplan explain deepseek-v3 -t 32k --tp 8", "on each of 8 GPUs"),
            ("kvplan explain ./config.json -v", "with config keys and sources"),
        ),
    ),
    "check": Everyday(
        (
            ("gpu", "where a command or a manifest runs: h100"),
            ("model", "of a server that names none, or a folder"),
            ("variables", "a variable that a file leaves open"),
            ("helm", "run helm template on a chart, read its output"),
            ("values", "with --helm: a file of values"),
            ("kustomize", "run kustomize build, read its output"),
            ("require", "what must hold: requests=60,tokens=8k"),
            ("env", "the overlay of an environment, or each"),
            ("baseline", "as it was: a git revision, folder, file or lock"),
            ("write_lock", "keep the figures, to be such a lock"),
            ("fleet", "whether all plans together find their GPUs"),
            ("quiet", "only what fails, and one line"),
            ("format", "text, json, github, junit, sarif, markdown"),
            ("output", "write the report to a file"),
            _JSON,
        ),
        (
            ("kvplan check plans/", "every plan of a folder"),
            ("kvplan check deployment.yaml --gpu h100", "what already runs"),
            ("kvplan check chart --helm --gpu h100", "a chart, rendered"),
        ),
    ),
    "compare": Everyday(
        (
            ("log", "start-up log of the engine, or - for stdin"),
            ("url", "a running vLLM or SGLang: http://HOST:PORT"),
            ("tolerance", "by how much a figure may be off: 2%"),
            ("receipt", "write what a server proves of a plan"),
            ("watch", "follow the server's load"),
            *_DEPLOYMENT[:5],
            _LENGTH,
            _SHARE,
            _ENV,
            _VERBOSE,
            _JSON,
        ),
        (
            ("kvplan compare server.log", "model and settings from the log"),
            ("kvplan compare plan.yaml server.log", "against a plan"),
            ("kvplan compare http://localhost:8000", "a running server"),
        ),
    ),
    "plan": Everyday(
        (
            _REQUESTS,
            ("tokens", "prompt and answer together: 8k"),
            ("workload", "a trace, or a plan whose workload counts"),
            ("arrival", "requests that arrive: 3/s, with --ttft and --tpot"),
            ("gpu", "to choose from: h100,h200; 8xh100: so many"),
            ("fleet", "a file of GPUs, how many, at what price"),
            ("prices", "a file of what a GPU costs an hour"),
            _ENGINE,
            ("objective", "fewest-gpus, cost, requests or context"),
            ("quality", "formats: lossless, safe or aggressive"),
            ("tpot", "time per output token at most: 50ms"),
            ("ttft", "time to first token at most: 2s"),
            ("write", "write the best as a plan file"),
            _VERBOSE,
            _JSON,
        ),
        (
            ("kvplan plan qwen3-32b -n 32 -t 8k --gpu h100,h200", "which, how many"),
            ("kvplan plan qwen3-32b -n 32 -t 8k --write plan.yaml", "keep it"),
            ("kvplan plan plan.yaml -n 200", "a higher load on its GPUs"),
        ),
    ),
    "simulate": Everyday(
        (
            ("trace", "requests with times: mooncake, azure, CSV …"),
            ("generate", "a load: requests=1000,input=2000,output=300"),
            ("rate", "requests a second, in place of the trace's"),
            ("concurrency", "so many requests are always under way"),
            ("replicas", "how many, or auto"),
            ("router", "round-robin, least-loaded, prefix-hash …"),
            ("ttft", "time to first token at most: 2s"),
            ("tpot", "time per further token at most: 50ms"),
            ("goodput", "share of requests that must keep them: 99%"),
            _GPU,
            _TP,
            _CACHE,
            ("sweep", "one run for each combination"),
            ("html", "also write one page that needs no network"),
            _JSON,
        ),
        (
            ("kvplan simulate plan.yaml", "its own trace and targets"),
            ("kvplan simulate plan.yaml --trace day.csv --rate 6", "another load"),
            ("kvplan simulate --trace t.jsonl --hit-rates 1k,10k", "prefix hits"),
        ),
    ),
    "validate": Everyday(
        (
            ("cuda_device", "the GPU, counted from 0"),
            ("device", "cpu: a rehearsal in host memory"),
            ("find_limit", "grow the pool until memory runs out"),
            ("dry_run", "say what would be allocated"),
            ("with_engine", "the installed engine measures it: vllm"),
            ("time_limit", "stop after so long: 90, 5m"),
            ("output", "where the receipt goes"),
            ("kv_cache_memory", "a pool of this size"),
            _TP,
            _ENGINE,
            _CACHE,
            _LENGTH,
            _ENV,
            _VERBOSE,
            _JSON,
        ),
        (
            ("kvplan validate plan.yaml", "on this machine's GPU"),
            ("kvplan validate plan.yaml --dry-run", "without torch"),
            ("kvplan validate qwen3-8b --device cpu", "a rehearsal"),
        ),
    ),
}
