"""Write kvplan/engines/vllm/data/backends.tsv: what each attention backend of vLLM takes, by release.

    python -m scripts.make_vllm_backends RELEASES

RELEASES: a folder with one folder a release (0.11.2 …), each an unpacked wheel of vllm-project/vllm. Of
vllm/v1/attention/backends the classes are read as text (ast); of each only the lists and the short methods
that answer what it takes are run, with stand-ins for torch and the platform, once for every
compute capability of `GPUS`. An answer that needs more than that (an installed package, the model's config)
is written as ``?``. One row for every run of releases that answer alike.
"""

from __future__ import annotations

import argparse
import ast
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from kvplan.engines.vllm.backends.table import FILE, HEADER, BackendRow, rows_text

GPUS = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
WIDTHS = tuple(range(8, 584, 8))
UNKNOWN = "?"
ASKED = (
    "get_supported_kernel_block_sizes",
    "get_preferred_block_size",
    "supports_block_size",
    "get_supported_head_sizes",
    "supports_head_size",
    "supports_compute_capability",
    "supports_sink",
    "supports_mm_prefix",
    "is_mla",
    "is_sparse",
)
LISTS = ("supported_dtypes", "supported_kv_cache_dtypes")
BASES = ("v1/attention/backend.py", "attention/backends/abstract.py")
OTHER_PLATFORMS = ("AMX", "CPU", "PALLAS", "XPU", "ZEN")
OLDEST = "0.11"
"""The first release whose backends say what they take in class methods."""


class Capability(NamedTuple):
    """vllm/platforms/interface.py, DeviceCapability."""

    major: int
    minor: int

    def to_int(self) -> int:
        return self.major * 10 + self.minor


class MultipleOf:
    """vllm/v1/attention/backend.py: any multiple of the base."""

    def __init__(self, base: int) -> None:
        self.base = base


class _Word(str):
    """An attribute of torch by its name."""


class _Torch:
    def __getattr__(self, name: str) -> str:
        return _Word(name)


def _platform(gpu: Capability, *, rocm: bool) -> Any:
    return types.SimpleNamespace(
        is_cuda=lambda: not rocm,
        is_rocm=lambda: rocm,
        is_xpu=lambda: False,
        is_cpu=lambda: False,
        is_device_capability_family=lambda family: family // 10 == gpu.major,
        is_device_capability=lambda wanted: wanted in (gpu, gpu.to_int()),
        has_device_capability=lambda wanted: gpu.to_int() >= wanted,
        get_device_capability=lambda: gpu,
    )


def _classes(root: Path) -> dict[str, ast.ClassDef]:
    """Every class of the backends' files, and their base."""
    files = [root / name for name in BASES if (root / name).is_file()]
    files += sorted((root / "v1/attention/backends").rglob("*.py"))
    files += sorted((root / "models/deepseek_v4").rglob("*.py")) if (root / "models").is_dir() else []
    files += sorted((root / "model_executor/layers/attention").glob("mla_attention.py"))
    found: dict[str, ast.ClassDef] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
    return found


def _built(name: str, nodes: dict[str, ast.ClassDef], space: dict[str, Any]) -> Any:
    """The class with what `ASKED` and `LISTS` name; bases that are not backends are left out."""
    made = space["__made__"]
    if name not in made:
        node = nodes[name]
        body: list[ast.stmt] = []
        for item in node.body:
            target = getattr(item, "target", None) or (getattr(item, "targets", None) or [None])[0]
            if isinstance(item, ast.FunctionDef) and item.name in (*ASKED, "get_name"):
                item.returns = None
                item.decorator_list = [
                    one
                    for one in item.decorator_list
                    if getattr(one, "id", "") in ("classmethod", "staticmethod")
                ]
                for argument in item.args.args:
                    argument.annotation = None
                body.append(item)
            elif isinstance(target, ast.Name) and target.id in LISTS:
                value = getattr(item, "value", None)
                body += [ast.Assign([ast.Name(target.id, ast.Store())], value)] if value is not None else []
        parents = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in nodes]
        for parent in parents:
            space[parent] = _built(parent, nodes, space)
        module = ast.parse(f"class {name}({', '.join(parents)}): pass")
        module.body[0].body = body or [ast.Pass()]  # type: ignore[attr-defined]
        ast.fix_missing_locations(module)
        exec(compile(module, name, "exec"), space)
        made[name] = space[name]
    return made[name]


def _space(gpu: Capability, *, rocm: bool = False) -> dict[str, Any]:
    return {
        "__made__": {},
        "ClassVar": ClassVar,
        "abstractmethod": lambda method: method,
        "logger": types.SimpleNamespace(warning_once=lambda *words: None, info_once=lambda *words: None),
        "MultipleOf": MultipleOf,
        "torch": _Torch(),
        "DeviceCapability": Capability,
        "CacheDType": str,
        "current_platform": _platform(gpu, rocm=rocm),
        "get_current_vllm_config_or_none": lambda: None,
        "get_current_vllm_config": lambda: types.SimpleNamespace(model_config=None),
    }


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # whatever the method needs beyond the stand-ins
        return None


def _sizes(cls: Any) -> str:
    """Block sizes: a number each, ``x`` before the base of multiples, ``preferred=`` where it differs."""
    found = _tried(lambda: list(cls.get_supported_kernel_block_sizes()))
    if found is None:
        return UNKNOWN
    words = [f"x{size.base}" if isinstance(size, MultipleOf) else str(size) for size in found]
    usual = _tried(lambda: cls.get_preferred_block_size(16))
    if "get_preferred_block_size" in vars(cls) and usual is not None:
        words.append(f"preferred={usual}")
    return ",".join(words)


def _heads(cls: Any) -> str:
    taken = [width for width in WIDTHS if _tried(lambda width=width: cls.supports_head_size(width))]  # type: ignore[misc]
    if len(taken) == len(WIDTHS):
        return "any"
    for least in (16, 32, 64):
        if taken == [width for width in WIDTHS if width >= least]:
            return f">={least}"
    if taken and taken == [width for width in WIDTHS if width <= taken[-1]]:
        return f"<={taken[-1]}"
    return ",".join(map(str, taken)) or UNKNOWN


def _yes(cls: Any, name: str) -> str:
    found = _tried(lambda: bool(getattr(cls, name)()))
    return UNKNOWN if found is None else "yes" if found else "no"


def _capabilities(name: str, nodes: dict[str, ast.ClassDef]) -> str:
    taken, unknown = [], False
    for pair in GPUS:
        gpu = Capability(*pair)
        cls = _built(name, nodes, _space(gpu))
        found = _tried(lambda cls=cls, gpu=gpu: cls.supports_compute_capability(gpu))  # type: ignore[misc]
        unknown = unknown or found is None
        if found:
            taken.append(f"{gpu.major}.{gpu.minor}")
    if unknown:
        return UNKNOWN
    return "any" if len(taken) == len(GPUS) else ",".join(taken)


def registry(root: Path) -> dict[str, str]:
    """Name of --attention-backend → class, from the enumeration of backends."""
    for place in ("v1/attention/backends/registry.py", "attention/backends/registry.py"):
        if (root / place).is_file():
            tree = ast.parse((root / place).read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendEnum":
                    pairs = [
                        (item.targets[0], item.value)
                        for item in node.body
                        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
                    ]
                    return {
                        target.id: value.value.rpartition(".")[2]
                        for target, value in pairs
                        if isinstance(target, ast.Name) and isinstance(value.value, str) and value.value
                    }
    return {}


def rows_of_release(root: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, answers) of every backend of one release."""
    nodes = _classes(root)
    for name, kind in registry(root).items():
        if kind not in nodes or name.startswith(OTHER_PLATFORMS):
            continue
        rocm = name.startswith("ROCM")
        cls = _tried(lambda kind=kind, rocm=rocm: _built(kind, nodes, _space(Capability(9, 0), rocm=rocm)))  # type: ignore[misc]
        if cls is None:
            continue
        dtypes = ",".join(getattr(cls, "supported_dtypes", ())) or UNKNOWN
        words = ",".join(getattr(cls, "supported_kv_cache_dtypes", ())) or "any"
        yield (
            name,
            (
                "sparse"
                if _yes(cls, "is_sparse") == "yes"
                else "mla"
                if _yes(cls, "is_mla") == "yes"
                else "plain",
                _capabilities(kind, nodes),
                _heads(cls),
                _sizes(cls),
                words,
                dtypes,
                _yes(cls, "supports_sink"),
                _yes(cls, "supports_mm_prefix"),
            ),
        )


def collected(releases: Path) -> list[BackendRow]:
    """Rows of all releases, runs of equal ones as one."""
    folders = sorted(
        (path for path in releases.iterdir() if (path / "vllm").is_dir()),
        key=lambda path: tuple(map(int, path.name.split("."))),
    )
    minors: dict[str, Path] = {}
    for path in folders:
        minor = ".".join(path.name.split(".")[:2])
        if tuple(map(int, minor.split("."))) >= tuple(map(int, OLDEST.split("."))):
            minors[minor] = path  # the newest patch of a minor release
    order = list(minors)
    seen: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for place, minor in enumerate(order):
        for name, answers in rows_of_release(minors[minor] / "vllm"):
            seen.setdefault(name, []).append((place, answers))
    rows = []
    for name, places in seen.items():
        start, answers = places[0]
        for index, (place, now) in enumerate(places):
            after = places[index + 1] if index + 1 < len(places) else None
            if after is not None and after == (place + 1, now):
                continue
            rows.append(
                BackendRow(
                    name,
                    order[start] if start else "",
                    order[place] if place + 1 < len(order) else "",
                    *answers,
                )
            )
            if after is not None:
                start, answers = after
    return sorted(rows, key=lambda row: (row.name, order.index(row.since or order[0])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", type=Path)
    rows = collected(parser.parse_args().releases)
    FILE.write_text(rows_text(rows), encoding="utf-8")
    print(f"{FILE.name} written: {len(rows)} rows of {len({row.name for row in rows})} backends; {HEADER[0]}")


if __name__ == "__main__":
    main()
