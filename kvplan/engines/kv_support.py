"""Which cache formats an engine has, since which release, on which GPUs: one table with its sources.

A row that needs more than a GPU (heads of a width, a backend that the user named) is refined by the engine's
own rules; a pair without a row here is refused by every command.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.release_rules import reached, through
from kvplan.record import record

Capability = tuple[int, int]


@record()
class KvRow:
    """words: as --kv-cache-dtype takes them. since, until: first and last release (empty: all known ones).

    vendors: None: any; capabilities: pairs of least and largest compute capability of NVIDIA GPUs, None: all.
    source: the file in which it was read.
    """

    engine: str
    words: tuple[str, ...]
    source: str
    since: str = ""
    until: str = ""
    vendors: tuple[str, ...] | None = None
    capabilities: tuple[tuple[Capability, Capability], ...] | None = None

    def in_release(self, version: str) -> bool:
        return through(version, self.since, self.until)

    def on_gpu(self, vendor: str, capability: Capability) -> bool:
        if self.vendors is not None and vendor not in self.vendors:
            return False
        if vendor != "nvidia" or self.capabilities is None:
            return True
        return any(low <= capability <= high for low, high in self.capabilities)


def _family(*majors: int) -> tuple[tuple[Capability, Capability], ...]:
    return tuple(((major, 0), (major, 9)) for major in majors)


def _from(major: int, minor: int = 0) -> tuple[tuple[Capability, Capability], ...]:
    return (((major, minor), (99, 9)),)


_NVIDIA = ("nvidia",)
_CACHE = "vllm-project/vllm vllm/config/cache.py (CacheDType), read in the wheels of 0.8.5 to 0.33.0"
_FLASHINFER = (
    "vllm-project/vllm vllm/v1/attention/backends/flashinfer.py (supports_kv_cache_dtype; before 0.28"
)
_ROCM = "; vllm/platforms/rocm.py (_get_backend_priorities): none of its backends lists it"
_SGL = "sgl-project/sglang 0.5.23 python/sglang/srt/"
_TRT = "NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/"

ROWS: tuple[KvRow, ...] = (
    KvRow("vllm", ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), _CACHE),
    KvRow("vllm", ("bfloat16",), _CACHE, since="0.11"),
    KvRow("vllm", ("float16",), _CACHE, since="0.18"),
    KvRow("vllm", ("fp8_ds_mla",), _CACHE + _ROCM, since="0.11", vendors=_NVIDIA),
    KvRow(
        "vllm",
        ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        _CACHE,
        since="0.20",
    ),
    KvRow("vllm", ("int8_per_token_head", "fp8_per_token_head"), _CACHE, since="0.20"),
    KvRow("vllm", ("int4_per_token_head",), _CACHE, since="0.25"),
    KvRow(
        "vllm",
        ("nvfp4",),
        _FLASHINFER + " FlashInferMetadataBuilder): trtllm-gen, the SM100 family only; 0.20 raises",
        since="0.21",
        until="0.31",
        vendors=_NVIDIA,
        capabilities=_family(10),
    ),
    KvRow(
        "vllm",
        ("nvfp4",),
        _FLASHINFER + " FlashInferMetadataBuilder; _nvfp4_kv_on_fa2: 8.x, 9.x and 12.x read it in software)",
        since="0.32",
        vendors=_NVIDIA,
        capabilities=_family(8, 9, 10, 12),
    ),
    KvRow(
        "vllm",
        ("nvfp4_4over6",),
        _FLASHINFER + " the word is unknown): the SM100 family only",
        since="0.28",
        vendors=_NVIDIA,
        capabilities=_family(10),
    ),
    KvRow(
        "vllm",
        ("nvfp4_ds_mla",),
        "vllm-project/vllm vllm/v1/attention/backends/mla/flashmla_sparse.py",
        since="0.30",
        vendors=_NVIDIA,
        capabilities=_family(10),
    ),
    KvRow("sglang", ("auto", "fp8_e5m2", "fp8_e4m3", "bfloat16"), _SGL + "mem_cache/kv_cache_dtype.py"),
    KvRow(
        "sglang",
        ("nvfp4",),
        _SGL + "arg_groups/kv_cache_hook.py (handle_kv4_compatibility)",
        vendors=_NVIDIA,
        capabilities=_family(10, 12),
    ),
    KvRow(
        "sglang",
        ("mxfp8",),
        _SGL + "arg_groups/kv_cache_hook.py (handle_mxfp8_kv_cache_compatibility)",
        vendors=_NVIDIA,
        capabilities=_from(10),
    ),
    KvRow(
        "sglang",
        ("fp4_mx_block16",),
        _SGL + "arg_groups/kv_cache_hook.py (handle_kv4_compatibility)",
        vendors=_NVIDIA,
    ),
    KvRow("trtllm", ("auto",), _TRT + "_torch/pyexecutor/model_loader.py (_KV_CACHE_MAP)"),
    KvRow(
        "trtllm",
        ("fp8_e4m3",),
        _TRT + "_torch/pyexecutor/model_loader.py (_KV_CACHE_MAP)",
        vendors=_NVIDIA,
        capabilities=_from(8, 9),
    ),
    KvRow(
        "trtllm",
        ("nvfp4",),
        "NVIDIA/TensorRT-LLM docs/source/features/quantization.md (hardware support matrix: no NVFP4 before"
        " Blackwell)",
        vendors=_NVIDIA,
        capabilities=_from(10),
    ),
)


def rows_of(engine: str, word: str) -> Iterator[KvRow]:
    """The rows of a word, oldest release first."""
    return (row for row in ROWS if row.engine == engine and word in row.words)


def words_on(engine: str, version: str, vendor: str, capability: Capability) -> tuple[str, ...]:
    """The words that a release takes on a GPU, in the table's order."""
    found = (
        word
        for row in ROWS
        if row.engine == engine and row.in_release(version) and row.on_gpu(vendor, capability)
        for word in row.words
    )
    return tuple(dict.fromkeys(found))


@record()
class NoCache:
    """Why a release keeps no cache in a format on a GPU, and what it keeps instead."""

    message: str
    help: tuple[str, ...]


def unsupported(
    engine: str, shown: str, version: str, word: str, gpu: str, vendor: str, capability: Capability
) -> NoCache | None:
    """None where the table has the pair. shown: the engine as people write it, gpu: the GPU's name."""
    rows = tuple(rows_of(engine, word))
    there = words_on(engine, version, vendor, capability)
    known = f"one of {', '.join(there)}"
    if not rows:
        return NoCache(f"{shown} has no cache dtype {word}", (known,))
    now = [row for row in rows if row.in_release(version)]
    later = [row for row in rows if row.since and row.on_gpu(vendor, capability)]
    ways = [f"use engine {engine}@{row.since}" for row in later if not row.in_release(version)
            and not reached(version, row.since)][:1]  # fmt: skip
    if not now:
        return NoCache(f"{shown} {version} has no cache dtype {word}", (*ways, known))
    if any(row.on_gpu(vendor, capability) for row in now):
        return None
    place = f"{gpu} ({capability[0]}.{capability[1]})" if vendor == "nvidia" else gpu
    return NoCache(
        f"{shown} {version} keeps a cache in {word} on {_where(now)}, not on {place}", (*ways, known)
    )


def _where(rows: list[KvRow]) -> str:
    ranges = [pair for row in rows for pair in row.capabilities or ()]
    if not ranges:
        return "NVIDIA GPUs only"
    words = [
        f"{low[0]}.x" if low[0] == high[0] else f"{low[0]}.{low[1]} and newer" for low, high in sorted(ranges)
    ]
    return f"NVIDIA GPUs of compute capability {', '.join(words)} only"
