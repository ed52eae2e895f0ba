"""vLLM's log lines, V0 (2024) to 0.33, with its CPU, Ascend and Intel builds.

Sources: vllm-project/vllm 0.8.5 (worker/worker.py, executor/executor_base.py), 0.20.0 and 0.32.0
(v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py, v1/core/kv_cache_utils.py, utils/mem_utils.py,
platforms/interface.py, engine/arg_utils.py), and field reports. Every "GB" and "GiB" is a binary one.
"""

from __future__ import annotations

import dataclasses
import re

from kvplan.engines.observed import Count, Observation, Rank, Row
from kvplan.engines.observed.rules import (
    Dialect,
    Rule,
    Values,
    at_coordinates,
    machine_rules,
    positive,
    rule,
    with_rows,
)
from kvplan.later import regex

_SAME = """
model dtype quantization revision load_format max_model_len max_num_seqs max_num_batched_tokens block_size
tensor_parallel_size pipeline_parallel_size data_parallel_size decode_context_parallel_size
prefill_context_parallel_size enable_expert_parallel gpu_memory_utilization kv_cache_dtype
kv_cache_memory_bytes kv_cache_dtype_skip_layers num_gpu_blocks_override enforce_eager cpu_offload_gb
swap_space max_cudagraph_capture_size enable_prefix_caching enable_chunked_prefill
disable_hybrid_kv_cache_manager mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode
enable_lora max_loras max_lora_rank served_model_name lora_dtype fully_sharded_loras async_scheduling
calculate_kv_scales language_model_only skip_mm_profiling limit_mm_per_prompt mm_encoder_tp_mode
attention_backend sliding_window enable_sleep_mode kv_offloading_size lora_target_modules mm_processor_kwargs
performance_mode runner moe_backend cudagraph_capture_sizes disable_sliding_window kv_offloading_backend
enable_eplb
""".split()
SETTINGS = {
    **dict.fromkeys(_SAME, ""),
    "model_tag": "model",
    "max_seq_len": "max_model_len",
    "cache_dtype": "kv_cache_dtype",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "user_specified_block_size": "",
    "device_config": "device",
}
"""Setting as printed → its name here, where that is another."""

_PROCESS = regex(
    r"\(([A-Za-z][\w-]{0,80})(?: rank=(\d{1,6}))?(?: pid=(\d{1,10}))(?:, ip=([\w.:]{1,45}))?\)", re.ASCII
)
_NAMED_BY_PID = ("VllmWorkerProcess", "RayWorkerWrapper", "RayWorker")


def rank_of(head: str) -> Rank:
    """The process that a line's prefix names: ``(Worker_DP0_TP3_EP3 pid=9)``; the last one where Ray adds its
    own.
    """
    found = _PROCESS.findall(head[-400:])
    if not found:
        return Rank()
    name, rank, pid, address = found[-1]
    label = name
    if rank:
        label += f" rank={rank}"
    elif name in _NAMED_BY_PID:
        label += f" pid={pid}" + (f" ip={address}" if address else "")
    return at_coordinates(label, name)


def _really_overridden(values: Values) -> bool:
    # 0.19 and later profile graphs with a make-believe pool: "Overriding num_gpu_blocks=0 with …=512".
    return positive("num_blocks")(values)


def _other_graphs(values: Values) -> bool:
    return values["cudagraph_mode"] != "FULL_AND_PIECEWISE"


RULES: tuple[Rule, ...] = (
    # Who and which settings.
    rule("vLLM API server version [[v]]{version:word}", kind="boot", weight=5),
    rule("vLLM server version [[v]]{version:word}, serving model {model:name}", kind="boot", weight=5),
    rule("▄▄ ▄█ █     █     █ ▀▄▀ █  version {version:word}", anchor="▄▄ ▄█", kind="boot", weight=5),
    rule("█▄█▀ █     █     █     █  model   {model:name}", anchor="█▄█▀ █", kind="settings", text="banner"),
    rule("non-default args:", kind="items", text="args", begins=True, weight=2),
    rule("args: Namespace", kind="items", anchor="args: Namespace", text="args", begins=True),
    rule("Initializing a {generation:word} LLM engine (v{version:word})", begins=True, weight=5),
    rule("Initializing an LLM engine (v{version:word})", begins=True, weight=5),
    rule(") with config:", kind="items", text="config"),
    rule(
        "'cudagraph_mode': <CUDAGraphMode.{cudagraph_mode:word}:",
        kind="settings",
        text="config",
        when=_other_graphs,
    ),
    rule(
        "'mode': <CompilationMode.NONE: 0>",
        kind="settings",
        text="config",
        says={"enforce_eager": "True"},
    ),
    rule("Resolved architecture: {architecture:word}", kind="settings", text="model"),
    rule("Using max model len {max_model_len:n}", kind="settings", text="model"),
    rule("Reset SSM cache type to {mamba_ssm_cache_dtype:word} for", kind="settings", text="platform"),
    rule("Defaulting max_num_seqs to {max_num_seqs:n} for", kind="settings", text="default"),
    rule(
        "Defaulting max_num_batched_tokens to {max_num_batched_tokens:n} for", kind="settings", text="default"
    ),
    rule(
        "Chunked prefill is enabled with max_num_batched_tokens={max_num_batched_tokens:n}",
        kind="settings",
        text="scheduler",
    ),
    rule(
        "Auto-fit max_model_len: reduced from {:any} to {max_model_len:n} to fit",
        kind="settings",
        text="auto-fit",
    ),
    rule(
        "Overriding num_gpu_blocks={num_blocks:n} with num_gpu_blocks_override={num_gpu_blocks_override:n}",
        kind="settings",
        text="override",
        when=_really_overridden,
    ),
    # The file of tuned kernels that was looked for.
    rule("device_name={gpu_name:word}", kind="settings", text="kernels"),
    *machine_rules(),
    # Which platform chose the backend (platforms/cuda.py, rocm.py), and for which compute capability
    # FlashInfer and FlashAttention have kernels there (v1/attention/backends/fa_utils.py: 3 on 9.0 alone).
    rule("[cuda.py:", kind="settings", text="platform", says={"platform": "cuda"}),
    rule("[rocm.py:", kind="settings", text="platform", says={"platform": "rocm"}),
    rule("[ROCm]", kind="settings", text="platform", says={"platform": "rocm"}),
    rule("Automatically detected platform {platform:name}", kind="settings", text="platform"),
    rule("as WSL is detected", kind="settings", text="platform", says={"wsl": "yes"}),
    rule("Using FlashAttention version {flash_attention:n}", kind="settings", text="backend"),
    rule(
        "Using {attention_backend:word} attention backend out of potential backends",
        kind="settings",
        text="backend",
        anchor="attention backend out of potential backends",
    ),
    rule(
        "FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0",
        kind="settings",
        text="sampler",
        says={"flashinfer": "no_sampler"},
    ),
    rule(
        "CUDA graph memory profiling is disabled",
        kind="settings",
        text="graphs",
        says={"estimate_cudagraphs": "false"},
    ),
    rule("flashinfer_autotune_cache/{:any}/{gpu_arch:word}/", kind="settings", text="autotuner"),
    rule(", arch=sm{gpu_arch:word}", kind="settings", anchor=", arch=sm", text="backend"),
    rule("connector with name: {kv_connector:word} and engine_id", kind="settings", text="connector"),
    # Weights.
    rule("Loading model weights took {weights_bytes:GiB} G", weight=3),
    rule("Model loading took {weights_bytes:GiB} G", weight=3),
    # V1's runner and V2's have files of their own (vllm/v1/worker/gpu_model_runner.py, gpu/model_runner.py).
    rule("Using V2 Model Runner", kind="settings", text="worker", says={"model_runner": "V2"}),
    rule(
        "[gpu_model_runner.py:{:num}] Model loading took",
        kind="settings",
        anchor="[gpu_model_runner.py:",
        text="runner",
        says={"model_runner": "V1"},
    ),
    # Graphs compiled in the measured run, or loaded from a cache (compilation/backends.py, decorators.py).
    rule("Compiling a graph for", kind="settings", text="compilation", says={"compiled_graphs": "cold"}),
    rule(
        "Directly load the compiled graph",
        kind="settings",
        text="compilation",
        says={"loaded_graphs": "warm"},
    ),
    rule(
        "Directly load AOT compilation", kind="settings", text="compilation", says={"loaded_graphs": "warm"}
    ),
    # V0's profile.
    rule(
        "Memory profiling results: total_gpu_memory={total_memory_bytes:GiB}GiB initial_memory_usage={:any} "
        "peak_torch_memory={peak_bytes:GiB}GiB[[ memory_usage_post_profile={:any}GiB]]"
        "[[ non_torch_memory={non_torch_bytes:GiB}GiB]][[ kv_cache_size={available_kv_bytes:GiB}GiB]]"
        "[[ gpu_memory_utilization={gpu_memory_utilization:u}]]",
        weight=3,
    ),
    rule(
        "total_gpu_memory ({total_memory_bytes:GiB}GiB) x gpu_memory_utilization "
        "({gpu_memory_utilization:u}) = {requested_bytes:GiB}GiB",
        weight=3,
    ),
    rule("model weights take {weights_bytes:GiB}GiB"),
    rule("non_torch_memory takes {non_torch_bytes:GiB}GiB"),
    rule("PyTorch activation peak memory takes {activation_peak_bytes:GiB}GiB"),
    rule("the rest of the memory reserved for KV Cache is {available_kv_bytes:GiB}GiB"),
    rule("blocks: {num_blocks:n}, # CPU blocks: {host_blocks:n}", anchor=", # CPU blocks:", weight=3),
    rule("# GPU blocks: {num_blocks:n}", weight=3),
    # V1's profile.
    rule("Available KV cache memory: {available_kv_bytes:GiB} GiB", weight=3),
    rule(
        "Explicitly set ({available_kv_bytes:GiB}/{total_memory_bytes:GiB}) GiB for KV cache",
        anchor="Explicitly set (",
        weight=3,
    ),
    rule(
        "Auto set ({available_kv_bytes:GiB}/{total_memory_bytes:GiB}) GiB for KV cache",
        anchor="Auto set (",
        weight=3,
    ),
    rule("KV cache size: {kv_tokens:n} tokens", weight=3),
    rule(
        "Maximum concurrency for {max_concurrency_tokens:n} tokens per request: {max_concurrency:x}x",
        weight=3,
    ),
    rule(
        "init memory snapshot: {:any}free_memory={free_before_bytes:GiB}GiB, "
        "total_memory={total_memory_bytes:GiB}GiB"
    ),
    rule("worker requested memory: {requested_bytes:GiB}GiB"),
    rule(
        "Initial free memory: {free_before_bytes:GiB} GiB[[; Requested memory: "
        "{gpu_memory_utilization:u} (util), {requested_bytes:GiB} GiB]]"
    ),
    rule("Free memory after profiling: {free_after_bytes:GiB} GiB (total)"),
    rule("Total non KV cache memory: {non_kv_bytes:GiB}GiB"),
    rule("torch peak memory increase: {activation_peak_bytes:GiB}GiB"),
    rule("non-torch forward increase memory: {non_torch_bytes:GiB}GiB"),
    rule("total consumed (from mem_get_info): {consumed_bytes:GiB}GiB"),
    rule("; weights memory: {weights_bytes:GiB}GiB"),
    # The summary at the end of the warm-up.
    rule(
        "Free memory on device [[{:any} ]]({free_before_bytes:GiB}/{total_memory_bytes:GiB} GiB) on startup",
        anchor="Free memory on device ",
    ),
    rule("memory utilization is ({gpu_memory_utilization:u}, {requested_bytes:GiB} GiB). Actual usage is"),
    rule("Actual usage is {weights_bytes:GiB} GiB for weight"),
    # Since 0.27 the peak of this line has the estimate of the graphs in it (gpu_worker.py, 0.27.1 to 0.32).
    rule(
        "Actual usage is {consumed_bytes:GiB} GiB for consumed memory[[ (weights + non-torch), "
        "{transient_peak_bytes:GiB} GiB for peak activation]]"
    ),
    rule(" GiB for weight, {activation_peak_bytes:GiB} GiB for peak activation", anchor=" GiB for weight, "),
    rule("{non_torch_bytes:GiB} GiB for non-torch memory", anchor=" GiB for non-torch memory"),
    rule("{cuda_graph_bytes:GiB} GiB for CUDAGraph memory", anchor=" GiB for CUDAGraph memory"),
    rule("{cuda_graph_bytes:GiB} GiB for NPU graph memory", anchor=" GiB for NPU graph memory"),
    rule(
        "--kv-cache-memory={suggested_kv_bytes:B}`[[ ({:num} GiB)]] to fit into requested memory",
        anchor="--kv-cache-memory=",
    ),
    rule(
        "--kv-cache-memory={largest_kv_bytes:B}`[[ ({:num} GiB)]] to fully utilize",
        anchor="--kv-cache-memory=",
    ),
    rule("Current kv cache memory in use is {available_kv_bytes:GiB} GiB"),
    rule("Current kv cache memory in use is {available_kv_bytes:B} bytes"),
    # CUDA graphs.
    rule("Graph capturing finished in {:any} took {cuda_graph_bytes:GiB} GiB"),
    rule(
        "Profiling CUDA graph memory: [[PIECEWISE={graphs_piecewise:n} (largest={graphs_largest:n})]][[, ]]"
        "[[FULL={graphs_full:n} (largest={:num})]]",
        kind="settings",
        anchor="Profiling CUDA graph memory:",
        text="runner",
    ),
    rule("Estimated CUDA graph memory: {cuda_graph_estimated_bytes:GiB} GiB"),
    rule(
        "CUDA graph pool memory: {cuda_graph_bytes:GiB} GiB (actual), "
        "{cuda_graph_estimated_bytes:GiB} GiB (estimated)"
    ),
    rule(
        "The current --gpu-memory-utilization={gpu_memory_utilization:u} is equivalent to "
        "--gpu-memory-utilization={equivalent_utilization:x}"
    ),
    # Blocks, padding, encoder.
    rule("Setting attention block size to {block_size:n} tokens"),
    rule("Padding mamba page size by {mamba_padding_percent:x}%"),
    rule(
        "Add {padding_layers:n} padding layers, may waste at most {padding_waste_percent:x}%",
        anchor=" padding layers,",
    ),
    rule(
        "Encoder cache will be initialized with a budget of {encoder_budget_tokens:n} tokens"
        "[[, and profiled with {encoder_items:n} {encoder_modality:word} items of the maximum feature size]]",
        anchor="Encoder cache will be",
        text="runner",
    ),
    rule(
        "Multiplying the GPU KV cache size by the dcp_world_size {decode_context_parallel_size:n}",
        kind="settings",
    ),
    rule("Multiplying the GPU KV cache size by the cp_world_size {context_parallel_size:n}", kind="settings"),
    # Intel builds.
    rule("> Peak Allocated (Real Need) : {peak_bytes:GiB} GB", anchor="> Peak Allocated (Real Need)"),
    rule("> Model memory usage : {weights_bytes:GiB} GB", anchor="> Model memory usage"),
    # Refusals.
    rule(
        "max seq len ({max_model_len:n}), [[(]]{needed_bytes:GiB} GiB KV cache is needed, "
        "which is larger than the available KV cache memory ({available_bytes:GiB} GiB)"
        "[[.{:any}the estimated maximum model length is {estimated_max_model_len:n}]]",
        kind="refusal",
        anchor="max seq len (",
        text="kv-cache-too-small",
        weight=3,
    ),
    rule(
        "max seq len ({max_model_len:n}) is larger than the maximum number of tokens "
        "that can be stored in KV cache ({kv_tokens:n})",
        kind="refusal",
        anchor="max seq len (",
        text="kv-cache-too-small",
        weight=3,
    ),
    rule("No available memory for the cache blocks", kind="refusal", text="no-memory-for-blocks", weight=3),
    rule(
        "max_num_seqs ({max_num_seqs:n}) exceeds available Mamba cache blocks ({state_blocks:n})",
        kind="refusal",
        text="too-few-state-blocks",
        weight=3,
    ),
    rule(
        "Free memory on device [[{:any} ]]({available_bytes:GiB}/{total_bytes:GiB} GiB) on startup "
        "is less than desired GPU memory utilization ({:any}, {needed_bytes:GiB} GiB)",
        kind="refusal",
        anchor="Free memory on device ",
        text="gpu-not-free",
        weight=3,
    ),
    rule("CUDA out of memory", kind="refusal", text="out-of-memory"),
    # Worth telling.
    rule(
        "Hybrid KV cache manager is disabled for this hybrid model",
        kind="note",
        text="the hybrid cache manager is off: every layer keeps all tokens",
    ),
    rule("Using {:any} KV cache layout", kind="note", anchor=" KV cache layout"),
)


def _finish(observation: Observation) -> Observation:
    """Tokens that the engine's own process printed stay where they are; a single worker's row takes its
    figures.

    With one GPU there is one process and nothing to do. Where the activation peak was not printed but the
    parts of the non-KV total were, it is the rest of them.
    """

    def rest(row: Row) -> Row:
        if row.activation_peak_bytes is None and row.peak_bytes is not None and row.weights_bytes is not None:
            return dataclasses.replace(
                row, activation_peak_bytes=_difference(row.peak_bytes, row.weights_bytes)
            )
        return row

    return with_rows(observation, rest)


def _difference(whole: Count, part: Count) -> Count:
    printed = f"{whole.printed} - {part.printed}"
    return Count(whole.value - part.value, whole.low - part.high, whole.high - part.low, printed, whole.line)


DIALECT = Dialect("vllm", RULES, rank_of, SETTINGS, _finish)
