"""TensorRT-LLM's log lines, 0.8 to 1.2, both backends. "GiB" is the binary unit, two decimals.

Sources: NVIDIA/TensorRT-LLM cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py (several commits), and logs in public documentation.

The PyTorch backend allocates a small pool, measures a run with it, frees it and allocates the real one: the
last allocation counts.
"""

from __future__ import annotations

import dataclasses

from kvplan.engines.observed import Count, Observation, Pool, Rank, Row
from kvplan.engines.observed.rules import Dialect, Rule, rule, with_rows
from kvplan.later import regex

SETTINGS = {
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "max_seq_len": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_num_batched_tokens",
    **dict.fromkeys(
        """model tensor_parallel_size pipeline_parallel_size dtype free_gpu_memory_fraction
            tokens_per_block""".split(),
        "",
    ),
}
"""Setting as printed → its name here, where that is another."""

_RANK = regex(r"\[RANK (\d{1,6})\]|\[1,(\d{1,6})\]<std(?:out|err)>")


def rank_of(head: str) -> Rank:
    """The rank in a line's prefix: ``[TRT-LLM] [RANK 3]``, or mpirun's ``[1,3]<stdout>``."""
    found = _RANK.findall(head[-400:])
    if not found:
        return Rank()
    number = found[-1][0] or found[-1][1]
    return Rank(f"rank {number}")


RULES: tuple[Rule, ...] = (
    rule("TensorRT-LLM version: {version:word}", kind="boot", weight=3),
    rule("TensorRT LLM version: {version:word}", kind="boot", weight=3),
    rule("[TRT-LLM] [I] Using LLM with PyTorch backend", kind="note", text="PyTorch backend", weight=3),
    rule("[TRT-LLM] [I] Using LLM with TensorRT backend", kind="note", text="TensorRT backend", weight=3),
    # Where the checkpoint lies (_torch/models/checkpoints/hf/weight_loader.py).
    rule(
        "Prefetching {model:name}/{:any}.safetensors to memory",
        kind="settings",
        anchor="Prefetching ",
        text="loader",
    ),
    # As releases up to 0.20 and 0.21 have both (_torch/pyexecutor/model_engine.py).
    rule(
        "Rank {:num} prefetching {model:name}/{:any}.safetensors to memory",
        kind="settings",
        anchor=" prefetching ",
        text="loader",
    ),
    rule(
        "Rank {:num} uses {weights_bytes:GiB} GB for model weights.",
        anchor=" GB for model weights.",
        weight=2,
    ),
    rule("Use {weights_bytes:GiB} GB for model weights.", weight=2),
    rule("Number of tokens per block: {block_size:n}", weight=3),
    rule(
        "[MemUsageChange] Allocated {kv_bytes:GiB} GiB for max tokens in paged KV cache ({kv_tokens:n})",
        closes=True,
        weight=5,
    ),
    rule("Number of blocks in KV cache primary pool: {num_blocks:n}", weight=3),
    rule("Number of blocks in KV cache secondary pool: {host_blocks:n}", weight=3),
    rule(
        "Max KV cache blocks per sequence: {:any} [window size={window:n}], tokens per block={block_size:n}, "
        "primary blocks={blocks:n}[[, secondary blocks={host_blocks:n}]]",
        kind="pool",
        anchor="Max KV cache blocks per sequence:",
        text="window {window}",
        weight=3,
    ),
    rule(
        "Window size = {window:n}, primary_blocks: {blocks:n}[[, secondary_blocks: {host_blocks:n}]]",
        kind="pool",
        anchor=", primary_blocks:",
        text="window {window}",
        weight=3,
    ),
    rule(
        "Memory usage when calculating max tokens in paged kv cache: total: {total_memory_bytes:GiB} GiB, "
        "available: {free_after_weights_bytes:GiB} GiB",
        weight=3,
    ),
    rule(
        "Peak memory during memory usage profiling (torch + non-torch): {peak_bytes:GiB} GiB, "
        "available KV cache memory when calculating max tokens: {available_kv_bytes:GiB} GiB, "
        "fraction is set {free_gpu_memory_fraction:u}, kv size [[per token ]]is {bytes_per_token:B}"
        "[[{:any}device total memory {total_memory_bytes:GiB} GiB]]",
        weight=5,
    ),
    rule(
        "Estimated max memory in KV cache : {available_kv_bytes:GiB} GiB",
        anchor="Estimated max memory in KV cache",
        weight=3,
    ),
    rule(
        "Estimated max tokens in KV cache : {kv_tokens:n}",
        anchor="Estimated max tokens in KV cache",
        weight=3,
    ),
    rule("Loaded engine size: {weights_bytes:MiB} MiB", weight=3),
    rule(
        "max_seq_len={max_model_len:n}, max_num_requests={max_num_seqs:n}, "
        "max_num_tokens={max_num_batched_tokens:n}",
        kind="settings",
        weight=2,
    ),
    rule("TRTGptModel maxNumSequences: {max_num_seqs:n}", kind="settings", weight=2),
    rule("TRTGptModel maxNumTokens: {max_num_batched_tokens:n}", kind="settings", weight=2),
    rule("TRTGptModel mMaxAttentionWindowSize: {max_attention_window:n}", kind="settings", weight=2),
    rule(
        "Attention window size {:any} exceeds upper bound {:any}. Reducing to {max_attention_window:n}",
        kind="settings",
        anchor="Attention window size ",
    ),
    rule("Adjusted max_seq_len to {max_model_len:n}", kind="settings"),
    rule("KV cache block reuse is {enable_block_reuse:word}", kind="settings"),
    rule(
        "maxTokensInPagedKvCache ({kv_tokens:n}) must be large enough",
        kind="refusal",
        text="kv-cache-too-small",
        weight=3,
    ),
    rule("CUDA out of memory", kind="refusal", text="out-of-memory"),
)


def _finish(observation: Observation) -> Observation:
    """Keep the last pool of each window, and let it tell the blocks where no line of its own did."""

    def kept(row: Row) -> Row:
        # A first, temporary set of pools stands before the lasting one.
        pools = tuple(reversed(_last_set(row.pools)))
        only = pools[0] if len(pools) == 1 else None
        blocks = row.num_blocks or (only.blocks if only else None)
        size = row.block_size or (pools[0].block_size if pools else None)
        return dataclasses.replace(
            row, pools=pools, num_blocks=blocks or _blocks(row.kv_tokens, size), block_size=size
        )

    return with_rows(observation, kept)


def _last_set(pools: tuple[Pool, ...]) -> list[Pool]:
    """The longest tail in which no window stands twice, last first."""
    seen: set[str] = set()
    tail: list[Pool] = []
    for pool in reversed(pools):
        if pool.name in seen:
            break
        seen.add(pool.name)
        tail.append(pool)
    return tail


def _blocks(tokens: Count | None, size: Count | None) -> Count | None:
    if tokens is None or size is None or size.value <= 0 or tokens.value % size.value:
        return None
    blocks = tokens.value // size.value
    return Count(blocks, blocks, blocks, f"{tokens.printed} / {size.printed}", tokens.line)


DIALECT = Dialect("trtllm", RULES, rank_of, SETTINGS, _finish)
