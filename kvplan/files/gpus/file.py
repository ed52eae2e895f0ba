"""One GPU spec file to one `Gpu`, without pydantic: this is on the path of every command.

The layout is that of `kvplan.files.gpus.schema.GpuSpecFile`, which the tests hold every packaged file to. A
figure is ``{value: ..., source: ..., note: ...}``; `value` may be null, `note` may be absent.
"""

from __future__ import annotations

import re
from typing import Any

from kvplan.files.located_reader import LocatedReader
from kvplan.files.yaml.marks import Key, Located
from kvplan.gpu import Gpu

_TEXTS = ("slug", "name", "vendor", "arch")
_LISTS = ("aliases", "nvml_names", "default_for")
_INT_FIGURES = ("memory_total_bytes", "memory_nvml_bytes", "bandwidth_bytes_per_second", "gpus_per_node")
_LINK_FIGURES = ("nvlink_bytes_per_second", "pcie_generation", "pcie_bytes_per_second")
_BOOL_FIGURES = ("fp8_tensor_cores", "fp4_tensor_cores")
_TEXT_FIGURES = ("memory_marketing", "compute_capability", "device_target")
_GROUPS = ("dense_tflops", "interconnect")
_KNOWN = {
    *_TEXTS, *_LISTS, *_INT_FIGURES, *_BOOL_FIGURES, *_TEXT_FIGURES, *_GROUPS, "unified_memory", "mig", "note"
}  # fmt: skip
DTYPES = ("fp16", "bf16", "fp8", "fp4", "int8")
_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")


def gpu_from_located(located: Located) -> Gpu:
    """The `Gpu` that a spec file describes.

    Raises:
        KvplanError: ``unknown-key``, ``missing-key`` or ``invalid-gpu-spec``, each with its line.
    """
    return _Reader(located, "a GPU spec", "invalid-gpu-spec").gpu()


class _Reader(LocatedReader):
    """Takes the file apart key by key and collects sources and notes on the way."""

    def __init__(self, located: Located, what: str, code: str) -> None:
        super().__init__(located, what, code)
        self.provenance: dict[str, str] = {}
        self.notes: dict[str, str] = {}

    def gpu(self) -> Gpu:
        self.only(self.data, _KNOWN, ())
        texts = {key: self.text((key,), required=True) for key in _TEXTS}
        ints = {key: self.whole((key,)) for key in _INT_FIGURES}
        links = {key: self.whole(("interconnect", key)) for key in self.group("interconnect", _LINK_FIGURES)}
        rates = {key: self.rate(("dense_tflops", key)) for key in self.group("dense_tflops", DTYPES)}
        marketing = self.figure(("memory_marketing",), str, "text such as `80 GB`")
        if marketing is None:
            raise self.missing("memory_marketing", ())
        mig = self.group("mig", ("parent", "profile"))
        return Gpu(
            slug=texts["slug"] or "",
            name=texts["name"] or "",
            vendor=texts["vendor"] or "",
            arch=texts["arch"] or "",
            memory_marketing=marketing,
            memory_total_bytes=ints["memory_total_bytes"],
            memory_nvml_bytes=ints["memory_nvml_bytes"],
            bandwidth_bytes_per_second=ints["bandwidth_bytes_per_second"],
            dense_tflops={dtype: rate for dtype, rate in rates.items() if rate is not None},
            compute_capability=self.capability(),
            device_target=self.figure(("device_target",), str, "text such as `gfx942`"),
            fp8_tensor_cores=self.figure(("fp8_tensor_cores",), bool, "true or false"),
            fp4_tensor_cores=self.figure(("fp4_tensor_cores",), bool, "true or false"),
            nvlink_bytes_per_second=links.get("nvlink_bytes_per_second"),
            pcie_generation=links.get("pcie_generation"),
            pcie_bytes_per_second=links.get("pcie_bytes_per_second"),
            gpus_per_node=ints["gpus_per_node"],
            is_unified_memory=self.typed(("unified_memory",), bool, "true or false", default=False),
            mig_parent=self.text(("mig", "parent"), required=True) if mig else None,
            mig_profile=self.text(("mig", "profile"), required=True) if mig else None,
            aliases=self.texts(("aliases",)),
            nvml_names=self.texts(("nvml_names",)),
            default_for=self.texts(("default_for",)),
            note=self.text(("note",)),
            provenance=self.provenance,
            notes=self.notes,
        )

    def figure(self, path: tuple[Key, ...], kind: type[Any], shape: str) -> Any:
        """The value of one figure; its source and note are filed under the path."""
        entry = self.typed(path, object, "", default=None, any_bool=True)
        if entry is None:
            return None
        if not isinstance(entry, dict):
            raise self.wrong(path, "a figure is written {value: ..., source: ...}")
        self.only(entry, {"value", "source", "note"}, path)
        source = self.text((*path, "source"), required=True)
        name = ".".join(str(part) for part in path)
        self.provenance[name] = source or ""
        note = self.text((*path, "note"))
        if note is not None:
            self.notes[name] = note
        if "value" not in entry:
            raise self.missing("value", path)
        return None if entry["value"] is None else self.typed((*path, "value"), kind, shape)

    def whole(self, path: tuple[Key, ...]) -> int | None:
        value: int | None = self.figure(path, int, "a whole number")
        if value is not None and value <= 0:
            raise self.wrong((*path, "value"), "this must be greater than 0")
        return value

    def rate(self, path: tuple[Key, ...]) -> float | None:
        value: float | None = self.figure(path, int | float, "a number")  # type: ignore[arg-type]
        if value is not None and value <= 0:
            raise self.wrong((*path, "value"), "this must be greater than 0")
        return value

    def capability(self) -> tuple[int, int] | None:
        value = self.figure(("compute_capability",), str, 'text such as "9.0"')
        if value is None:
            return None
        match = _CAPABILITY.fullmatch(value)
        if match is None:
            raise self.wrong(("compute_capability", "value"), 'a compute capability is written "9.0"')
        return int(match[1]), int(match[2])

    def group(self, key: str, known: tuple[str, ...]) -> list[str]:
        """The keys present in a group of figures."""
        entry = self.typed((key,), object, "", default=None, any_bool=True)
        if entry is None:
            return []
        if not isinstance(entry, dict):
            raise self.wrong((key,), f"`{key}` holds `key: value` lines")
        self.only(entry, set(known), (key,))
        return [name for name in known if name in entry]
