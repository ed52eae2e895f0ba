"""One GPU spec file to one `Gpu`, without pydantic: this is on the path of every command.

The layout is that of `kvplan.readers.gpus.schema.GpuSpecFile`, which the tests hold every packaged file to. A
figure is ``{value: ..., source: ..., note: ...}``; `value` may be null, `note` may be absent.
"""

from __future__ import annotations

import re
from typing import Any

from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.readers.yaml.marks import Key, Located

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
    return _Reader(located).gpu()


class _Reader:
    """Takes the file apart key by key and collects sources and notes on the way."""

    def __init__(self, located: Located) -> None:
        self.located = located
        self.data = located.mapping("a GPU spec")
        self.provenance: dict[str, str] = {}
        self.notes: dict[str, str] = {}

    def gpu(self) -> Gpu:
        self.only(self.data, _KNOWN, ())
        texts = {key: self.text((key,), required=True) for key in _TEXTS}
        ints = {key: self.whole((key,)) for key in _INT_FIGURES}
        links = {key: self.whole(("interconnect", key)) for key in self.group("interconnect", _LINK_FIGURES)}
        rates = {key: self.number(("dense_tflops", key)) for key in self.group("dense_tflops", DTYPES)}
        marketing = self.figure(("memory_marketing",), str, "text such as `80 GB`")
        if marketing is None:
            raise self.located.error("missing-key", "the key `memory_marketing` is missing", help="add it")
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
            aliases=self.texts("aliases"),
            nvml_names=self.texts("nvml_names"),
            default_for=self.texts("default_for"),
            note=self.text(("note",)),
            provenance=self.provenance,
            notes=self.notes,
        )

    def figure(self, path: tuple[Key, ...], kind: type[Any], shape: str) -> Any:
        """The value of one figure; its source and note are filed under the path."""
        entry = self.at(path)
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
            raise self.located.error(
                "missing-key", f"the key `value` of `{name}` is missing", path, help="add it"
            )
        return None if entry["value"] is None else self.typed((*path, "value"), kind, shape)

    def whole(self, path: tuple[Key, ...]) -> int | None:
        value: int | None = self.figure(path, int, "a whole number")
        if value is not None and value <= 0:
            raise self.wrong((*path, "value"), "this must be greater than 0")
        return value

    def number(self, path: tuple[Key, ...]) -> float | None:
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
        entry = self.at((key,))
        if entry is None:
            return []
        if not isinstance(entry, dict):
            raise self.wrong((key,), f"`{key}` holds `key: value` lines")
        self.only(entry, set(known), (key,))
        return [name for name in known if name in entry]

    def text(self, path: tuple[Key, ...], *, required: bool = False) -> str | None:
        value: str | None = self.typed(path, str, "text", default=None)
        if required and not value:
            name = ".".join(str(part) for part in path)
            raise self.located.error(
                "missing-key", f"the key `{name}` is missing", path[:-1], help=f"add `{path[-1]}:`"
            )
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.typed((key,), list, "a list", default=[])
        return tuple(self.typed((key, index), str, "text") for index in range(len(values)))

    def typed(self, path: tuple[Key, ...], kind: Any, shape: str, *, default: Any = ...) -> Any:
        value = self.at(path)
        if value is None and default is not ...:
            return default
        # bool is an int to Python, never to a reader of the file.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(path, f"this must be {shape}")
        return value

    def at(self, path: tuple[Key, ...]) -> Any:
        value: Any = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int):
                value = value[part]
            else:
                return None
        return value

    def only(self, entry: dict[Key, Any], known: set[str], path: tuple[Key, ...]) -> None:
        for key in entry:
            if key not in known:
                from kvplan.readers.yaml.validation import unknown_key

                raise unknown_key(self.located, (*path, key), known - set(map(str, entry)))

    def wrong(self, path: tuple[Key, ...], message: str) -> KvplanError:
        name = ".".join(str(part) for part in path)
        text = self.located.text(path)
        helps = [f'put it in quotes: "{text}"'] if text and "text" in message else []
        return self.located.error("invalid-gpu-spec", f"`{name}`: {message}", path, help=helps)
