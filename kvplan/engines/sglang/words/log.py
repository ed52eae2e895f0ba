"""SGLang's log lines, 0.4 to 0.5.23. "GB" is a GiB, two decimals.

Sources: sgl-project/sglang 0.5.23 (model_executor/model_runner.py, mem_cache/memory_pool.py,
mem_cache/kv_cache_configurator.py, model_executor/pool_configurator.py, managers/scheduler.py,
model_executor/model_runner_components/cuda_graph_setup.py) and field reports for older forms.
"""

from __future__ import annotations

import dataclasses

from kvplan.engines.observed import Count, Observation, Pool, Rank, Row, total
from kvplan.engines.observed.rules import (
    Dialect,
    Rule,
    at_coordinates,
    machine_rules,
    rule,
    summed,
    with_rows,
)
from kvplan.later import regex

SETTINGS = {
    "model_path": "model",
    "context_length": "max_model_len",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "dcp_size": "decode_context_parallel_size",
    "page_size": "page_size",
    "disable_cuda_graph": "enforce_eager",
    "disable_radix_cache": "disable_radix_cache",
    "attention_backend": "attention_backend",
    **dict.fromkeys(
        """dtype quantization revision kv_cache_dtype mem_fraction_static max_running_requests
        max_total_tokens chunked_prefill_size max_prefill_tokens enable_dp_attention swa_full_tokens_ratio
        mamba_full_memory_ratio mamba_ssm_dtype max_mamba_cache_size cuda_graph_max_bs speculative_algorithm
        speculative_num_draft_tokens speculative_num_steps disaggregation_mode cpu_offload_gb
        attn_dp_size enable_dp_lm_head ep_size moe_a2a_backend moe_dense_tp_size ep_num_redundant_experts
        served_model_name load_format device""".split(),
        "",
    ),
}
"""Setting as printed → its name here, where that is another."""

_PREFIX = regex(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?((?: [A-Z_]{2,10}\d{1,5}){0,8})\]")


def rank_of(head: str) -> Rank:
    """The rank in a line's prefix: ``[2026-01-31 09:00:00 DP0 TP3]``."""
    found = _PREFIX.findall(head[-400:])
    label = found[-1].strip() if found else ""
    return at_coordinates(label, label)


_ALLOCATED = (
    "{label:label}KV Cache is allocated. [[dtype: {k_dtype:word}, ]]#tokens: {tokens:n}"
    "[[, K size: {k_bytes:GiB} GB, V size: {v_bytes:GiB} GB]][[, KV size: {bytes:GiB} GB]]"
)

RULES: tuple[Rule, ...] = (
    rule("server_args=", kind="boot", anchor="server_args=", weight=3),
    rule("server_args=", kind="items", anchor="server_args=", text="args", weight=0),
    rule("device_name={gpu_name:word}", kind="settings", text="kernels", weight=0),
    *machine_rules(),
    # Said before the arguments are, where nvidia-smi tells no memory (GB10).
    rule("Reported total GPU memory per device (MiB): [{gpu_total_mib:n}", kind="settings", text="memory"),
    # Between the CUDA context and the first look at what is free (model_executor/model_runner.py).
    rule("Init torch distributed ends. {:any}mem usage={distributed_bytes:GiB} GB", again=""),
    rule(
        "Memory profiling: available_gpu_memory={:num} GB, total_gpu_memory={free_before_bytes:GiB} GB, "
        "mem_fraction_static={:num}, rest_memory={available_kv_bytes:GiB} GB",
        anchor="Memory profiling: available_gpu_memory=",
    ),
    rule("Load weight begin. avail mem={free_before_bytes:GiB} GB", again="", weight=3),
    rule(
        "Load weight end. {:any}avail mem={free_after_weights_bytes:GiB} GB"
        "[[, mem usage={weights_bytes:GiB} GB]]",
        again="draft_weights_bytes",
        weight=3,
    ),
    rule(
        "Load weight end. {:any}type={architecture:word},",
        kind="settings",
        anchor="Load weight end.",
        text="load",
    ),
    # Builds before 0.5.23 divided DeepSeek-V4's memory so (model_executor/pool_configurator.py).
    rule(
        "DSv4 memory calculation: bytes_per_full_token={dsv4_bytes_per_token:u}",
        kind="settings",
        text="memory",
    ),
    rule(_ALLOCATED, kind="pool", anchor="KV Cache is allocated.", text="kv", weight=3),
    rule(
        "Post-capture KV sizing: KV cache allocated. dtype: {k_dtype:word}, #tokens: {tokens:n}, "
        "KV size: {bytes:GiB} GB",
        kind="pool",
        text="all",
    ),
    rule(
        "Post-capture KV sizing: draft KV cache allocated. dtype: {k_dtype:word}, #tokens: {tokens:n}, "
        "KV size: {bytes:GiB} GB",
        kind="pool",
        text="draft",
    ),
    rule(
        "Mamba Cache is allocated. max_mamba_cache_size: {mamba_slots:n}, "
        "conv_state size: {mamba_conv_bytes:GiB}GB, ssm_state size: {mamba_ssm_bytes:GiB}GB",
        weight=3,
    ),
    rule(
        "Use sliding window memory pool. full_layer_tokens={full_tokens:n}, swa_layer_tokens={swa_tokens:n}",
        weight=3,
    ),
    rule("Use sliding window memory pool (all SWA). swa_layer_tokens={swa_tokens:n}", weight=3),
    rule(
        "Post-capture KV sizing: full_layer_tokens={full_tokens:n}, swa_layer_tokens={swa_tokens:n}",
    ),
    rule("Memory pool end. avail mem={free_after_bytes:GiB} GB", weight=3),
    rule("raph end. {:far}mem usage={cuda_graph_bytes:GiB} GB", anchor="raph end.", add=True),
    rule(
        "max_total_num_tokens={kv_tokens:n}[[, chunked_prefill_size={chunked_prefill_size:opt}]]"
        "[[, max_prefill_tokens={max_prefill_tokens:opt}]]"
        "[[, max_running_requests={running_requests:opt}]]"
        "[[, context_len={max_model_len:opt}]]",
        weight=3,
    ),
    rule(
        "Loaded weights leave no GPU memory for the KV cache under "
        "--mem-fraction-static={mem_fraction_static:u}."
        "[[ Raise --mem-fraction-static above {suggested_fraction:x}]]",
        kind="refusal",
        text="weights-leave-nothing",
        weight=3,
    ),
    rule(
        "Not enough memory. Please try to increase --mem-fraction-static",
        kind="refusal",
        text="no-memory-for-blocks",
        weight=3,
    ),
    rule("out of memory. Tried to allocate", kind="refusal", text="out-of-memory"),
)


def _finish(observation: Observation) -> Observation:
    """Name the pools that the lines leave nameless, and add them up.

    Older releases print one unlabelled line for each pool: the token counts tell the window's from the full
    layers'. A second pool of the same name on one rank is the draft model's, which has the target's number
    of slots.
    """

    told = next((row for row in observation.rows if row.full_tokens and row.swa_tokens), None)

    def named(row: Row) -> Row:
        if told is not None and row.pools and not row.full_tokens and not row.swa_tokens:
            # An excerpt without this rank's own line: every rank has the same slots.
            row = dataclasses.replace(row, full_tokens=told.full_tokens, swa_tokens=told.swa_tokens)
        pools: list[Pool] = []
        for pool in row.pools:
            name = _role(pool, row) if pool.name == "kv" else pool.name
            if any(other.name == name for other in pools):
                name = "draft" if name == "kv" else f"draft {name}"
            pools.append(dataclasses.replace(pool, name=name, bytes=pool.bytes or _both(pool)))
        own = [pool for pool in pools if not pool.name.startswith("draft")]
        alone = own[0].tokens if len(own) == 1 and own[0].name != "swa" else row.full_tokens
        tokens = row.kv_tokens or alone
        # An excerpt may have the line of the window's pool alone.
        whole = row.full_tokens is None or {pool.name for pool in own} != {"swa"}
        held = row.kv_bytes or (summed(own, "bytes") if whole else None)
        return dataclasses.replace(row, pools=tuple(pools), kv_bytes=held, kv_tokens=tokens)

    return with_rows(observation, named)


def _role(pool: Pool, row: Row) -> str:
    tokens = None if pool.tokens is None else pool.tokens.value
    full, window = (None if count is None else count.value for count in (row.full_tokens, row.swa_tokens))
    if tokens is None or window is None or full == window:
        return "kv"
    return "swa" if tokens == window else "full" if tokens == full else "kv"


def _both(pool: Pool) -> Count | None:
    return total([pool.k_bytes, pool.v_bytes]) if pool.k_bytes and pool.v_bytes else None


DIALECT = Dialect("sglang", RULES, rank_of, SETTINGS, _finish)
