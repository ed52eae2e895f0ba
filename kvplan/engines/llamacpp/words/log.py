"""llama.cpp's log lines, 2024 to llama-cpp-python 0.3.36. Sizes are MiB with two decimals; a row is
a device.

Sources: ggml-org/llama.cpp at 0c1e57098 (src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-
recurrent.cpp, llama-context.cpp, llama-model.cpp, llama.cpp), older forms from public logs.

A draft model, or a second context of the same model, is logged by the same lines after the first: from there
on devices are called ``CUDA0 draft`` and pools ``draft …``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kvplan.engines.observed import Count, Observation, Pool, Rank, Row, total
from kvplan.engines.observed.rules import Dialect, Rule, Values, rule, summed
from kvplan.units import TIB


def rank_of(head: str) -> Rank:
    """The one process; devices are named in the lines themselves."""
    del head
    return Rank(whole=True)


_SECOND = "second"
_CONTEXT = ("sched_reserve", "llama_context", "llama_init_from_model", "llama_new_context_with_model")
"""Who tells the model's compute buffer; an image encoder has one of its own (tools/mtmd/clip.cpp,
alloc_compute_meta)."""


def _breakdown_rules() -> tuple[Rule, ...]:
    """The table that is printed while parameters are fitted, and at the end (common/fit.cpp and
    src/llama-context.cpp, memory_breakdown): whole MiB, rounded down. The lines of a device's own buffers are
    finer and count first."""
    taken = "{:n} = {weights_bytes:MiBdown} + {kv_bytes:MiBdown} + {compute_bytes:MiBdown}"
    anchor = "memory_breakdown_print: |"
    device = "- {device:device} [[({gpu_name:path})]] |"
    return (
        rule(
            f"{anchor} {device} {{total_memory_bytes:MiB}} = {{:n}} + ( {taken} ) +",
            anchor=anchor,
            weight=3,
        ),
        rule(
            f"{anchor} {device} {{:n}} = {{:n}} + ( {{:n}} = {{:n}} + {{:n}} + {{:n}} ) +"
            " {unaccounted_bytes:MiB} |",
            anchor=anchor,
            when=_is_amount,
            weight=1,
        ),
        rule(f"{anchor} - {{device:device}} | {taken} |", anchor=anchor, weight=2),
    )


def _is_amount(values: Values) -> bool:
    """Before anything is allocated the rest is what will be, with its sign turned."""
    rest = values.get("unaccounted_bytes")
    return isinstance(rest, Count) and 0 <= rest.value < _MOST_UNACCOUNTED


_MOST_UNACCOUNTED = TIB
"""More is a difference below zero, printed without its sign."""

RULES: tuple[Rule, ...] = (
    rule("build: {version:word} ({:any}) with", kind="boot", weight=1),
    rule("build_info: {version:word}", kind="boot", weight=1),
    rule("llama_model_loader: loaded meta data with", kind=_SECOND, weight=3),
    rule("constructing llama_context", kind=_SECOND, weight=3),
    rule(
        " tensors from {model:path} (version",
        kind="settings",
        anchor=" tensors from ",
        text="loader",
        weight=2,
    ),
    rule("loading model '{model:path}'", kind="settings", anchor="loading model '", text="loader"),
    rule("general.name   = {model_name:rest}", kind="settings", anchor="general.name  ", text="loader"),
    rule("file type   = {quantization:rest}", kind="settings", anchor="file type  ", text="loader", weight=2),
    rule(
        "offloaded {gpu_layers:n}/{total_layers:n} layers to GPU",
        kind="settings",
        anchor=" layers to GPU",
        weight=2,
    ),
    # Settings of the context.
    *(
        rule(f"{name}   = {{{known}:{unit}}}", kind="settings", anchor=f"{name}  ", text="context")
        for name, known, unit in (
            ("n_ctx", "n_ctx", "n"),
            ("n_ctx_seq", "max_model_len", "n"),
            ("n_seq_max", "max_num_seqs", "n"),
            ("n_batch", "max_num_batched_tokens", "n"),
            ("n_ubatch", "n_ubatch", "n"),
            ("flash_attn", "flash_attn", "word"),
            ("kv_unified", "kv_unified", "word"),
            ("n_ctx_train", "n_ctx_train", "n"),
            ("n_swa", "n_swa", "n"),
        )
    ),
    rule("n_ctx_per_seq = {max_model_len:n}", kind="settings", text="context"),
    # The server's slots where nobody gave their number (tools/server/server.cpp).
    rule(
        "n_parallel = {max_num_seqs:n} and kv_unified = {kv_unified:word}",
        kind="settings",
        anchor="n_parallel = ",
        text="server",
    ),
    rule(
        "using device {device:device} ({gpu_name:path})[[ ({:any})]] - {free_before_bytes:MiB} MiB free",
        anchor="using device ",
        text="device",
        weight=2,
    ),
    # Buffers, one line for each device.
    rule(
        "{device:device} model buffer size = {weights_bytes:MiB} MiB",
        anchor="model buffer size",
        add=True,
        weight=3,
    ),
    rule("{device:device} KV buffer size = {kv_bytes:MiB} MiB", anchor="KV buffer size", add=True, weight=3),
    rule(
        "{device:device} RS buffer size = {state_bytes:MiB} MiB", anchor="RS buffer size", add=True, weight=3
    ),
    *(
        rule(
            f"{teller}: {{device:device}} compute buffer size = {{compute_bytes:MiB}} MiB",
            anchor="compute buffer size",
            weight=3,
        )
        for teller in _CONTEXT
    ),
    rule(
        "{device:device} output buffer size = {output_bytes:MiB} MiB", anchor="output buffer size", weight=2
    ),
    *_breakdown_rules(),
    # Caches.
    # With --swa-full, which is llama-cpp-python's default and not llama-server's.
    rule("using {swa_full:word} SWA cache", kind="settings", anchor=" SWA cache", text="context"),
    rule("creating {label:label}KV cache, size =", kind="name", anchor="KV cache, size ="),
    rule(
        "size = {bytes:MiB} MiB ( {tokens:n} cells, {layers:n} layers, {sequences:n}[[/{streams:n}]] seqs), "
        "K ({k_dtype:word}): {k_bytes:MiB} MiB, V ({v_dtype:word}): {v_bytes:MiB} MiB",
        kind="pool",
        anchor=" seqs), K (",
        text="kv",
        weight=3,
    ),
    rule(
        "KV self size = {bytes:MiB} MiB, K ({k_dtype:word}): {k_bytes:MiB} MiB, "
        "V ({v_dtype:word}): {v_bytes:MiB} MiB",
        kind="pool",
        anchor="KV self size",
        text="kv",
        weight=3,
    ),
    rule(
        "size = {bytes:MiB} MiB ( {tokens:n} cells, {layers:n} layers, {sequences:n} seqs[[{:any}rs_seq]]), "
        "R ({k_dtype:word}): {k_bytes:MiB} MiB, S ({v_dtype:word}): {v_bytes:MiB} MiB",
        kind="pool",
        anchor="), R (",
        text="state",
        weight=3,
    ),
    rule("failed to allocate buffer for kv cache", kind="refusal", text="out-of-memory", weight=3),
    rule(
        "failed to fit params to free device memory",
        kind="note",
        text="llama.cpp could not fit its parameters to the free memory",
    ),
    rule(
        "context size reduced from {before:n} to {after:n}",
        kind="note",
        text="llama.cpp reduced the context from {before} to {after} tokens to fit",
    ),
)
_BUFFERS = ("weights_bytes", "kv_bytes", "state_bytes", "compute_bytes", "output_bytes")
_NAMES = {"non-swa": "full"}
_TABLE_HOST = "Host"
"""All of the CPU's memory, as the memory breakdown calls it."""


def _finish(observation: Observation) -> Observation:
    """Call the caches as kvplan does; add the devices' buffers up in the row of the whole process."""
    whole = next((row for row in observation.rows if row.rank.whole), Row(rank_of("")))
    devices = _devices(observation)
    pools = tuple(dataclasses.replace(pool, name=_NAMES.get(pool.name, pool.name)) for pool in whole.pools)
    main = main_cache(pools)
    window = next((pool for pool in pools if pool.name == "swa"), None)
    whole = dataclasses.replace(
        whole,
        pools=pools,
        kv_tokens=main.tokens if main else None,
        swa_tokens=window.tokens if window else None,
        **_buffers(devices, pools),
    )
    return dataclasses.replace(observation, rows=(whole, *devices) if observation.rows else ())


def _devices(observation: Observation) -> list[Row]:
    """The devices' rows, without the CPU's of the memory breakdown where its buffers are told one by one."""
    devices = [row for row in observation.rows if not row.rank.whole]
    finer = any(lies_on_cpu(row) and row.rank.label != _TABLE_HOST for row in devices)
    return [row for row in devices if not finer or row.rank.label != _TABLE_HOST]


def _buffers(devices: list[Row], pools: tuple[Pool, ...]) -> dict[str, Any]:
    """The devices' buffers but the draft's, added up; of GPUs' compute buffers the largest."""
    own = [row for row in devices if not row.rank.label.endswith(" draft")]
    sums: dict[str, Any] = {
        name: total(getattr(row, name) for row in own if getattr(row, name)) for name in _BUFFERS
    }
    beside = [row.compute_bytes for row in own if row.compute_bytes and not lies_on_cpu(row)]
    if beside:
        sums["compute_bytes"] = max(beside, key=lambda one: one.value)
    if not sums["kv_bytes"]:
        caches = [pool for pool in pools if pool.name != "state" and not pool.name.startswith("draft")]
        sums["kv_bytes"] = summed(caches, "bytes")
    return sums


def lies_on_cpu(row: Row) -> bool:
    """Whether a buffer lies in the CPU's memory: its own, or a GPU's side of it (CUDA_Host)."""
    return row.rank.label.startswith("CPU") or "Host" in row.rank.label


def main_cache(pools: tuple[Pool, ...]) -> Pool | None:
    """The cache that keeps every token: the full one, or the only one."""
    return next((pool for pool in pools if pool.name in ("full", "kv", "main")), None)


DIALECT = Dialect("llamacpp", RULES, rank_of, {}, _finish)
