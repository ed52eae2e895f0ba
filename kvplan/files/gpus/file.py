"""One GPU spec to one `Gpu`. `kvplan.files.gpus.schema.GpuSpecFile` is its layout and judges own files.

A figure is ``{value: ..., source: ..., note: ...}``; `value` may be null, `note` may be absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplan.files.yaml.marks import Located
from kvplan.gpu import Gpu
from kvplan.record import Json

_TEXTS = ("slug", "name", "vendor", "arch", "note", "market")
_LISTS = ("aliases", "nvml_names", "default_for")
_FIGURES = (
    "memory_marketing", "memory_total_bytes", "memory_nvml_bytes", "bandwidth_bytes_per_second",
    "multiprocessors", "device_target", "gpus_per_node", "fp8_tensor_cores", "fp4_tensor_cores",
    "power_watts", "memory_settable_bytes",
)  # fmt: skip
_LINKS = ("nvlink_bytes_per_second", "pcie_generation", "pcie_bytes_per_second")
DTYPES = ("fp16", "bf16", "fp8", "fp4", "int8")


def gpu_from_located(located: Located) -> Gpu:
    """The `Gpu` that anybody's spec file describes.

    Raises:
        KvplanError: ``unknown-key``, ``missing-key`` or ``invalid-gpu-spec``, each with its line.
    """
    from kvplan.files.gpus.schema import lint_gpu_spec
    from kvplan.files.yaml.validation import combine, typos_first

    located.mapping("a GPU spec")
    errors = lint_gpu_spec(located)
    if errors:
        raise combine(typos_first(errors))
    return gpu_of(located.data)


def gpu_of(data: Json) -> Gpu:
    """The `Gpu` of a spec that keeps the layout: packaged specs are judged when their index is built."""
    figures = {path: entry for path, entry in _figures(data) if entry is not None}
    values = {path: entry["value"] for path, entry in figures.items()}
    capability, mig = values.get("compute_capability"), data.get("mig") or {}
    rates = {dtype: values.get(f"dense_tflops.{dtype}") for dtype in DTYPES}
    named: dict[str, Any] = {
        **{key: data.get(key) for key in _TEXTS},
        **{key: tuple(data.get(key) or ()) for key in _LISTS},
        **{key: values.get(key) for key in _FIGURES},
        **{key: values.get(f"interconnect.{key}") for key in _LINKS},
    }
    return Gpu(
        **named,
        memory_totals_seen=_seen(data, "memory_totals_seen"),
        memory_free_seen=_seen(data, "memory_free_seen"),
        dense_tflops={dtype: rate for dtype, rate in rates.items() if rate is not None},
        compute_capability=None if capability is None else _version(capability),
        is_unified_memory=data.get("unified_memory", False),
        is_announced=data.get("announced", False),
        mig_parent=mig.get("parent"),
        mig_profile=mig.get("profile"),
        provenance={path: entry["source"] for path, entry in figures.items()},
        notes={path: entry["note"] for path, entry in figures.items() if entry.get("note") is not None},
    )


def _seen(data: Json, key: str) -> tuple[int, ...]:
    return tuple(entry["value"] for entry in data.get(key) or () if entry["value"])


def _figures(data: Json) -> Iterator[tuple[str, Any]]:
    """(``dense_tflops.bf16``, the figure) of every figure."""
    for key in (*_FIGURES, "compute_capability"):
        yield key, data.get(key)
    for group, names in (("interconnect", _LINKS), ("dense_tflops", DTYPES)):
        for name in names:
            yield f"{group}.{name}", (data.get(group) or {}).get(name)


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)
