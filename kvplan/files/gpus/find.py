"""Finding a GPU by slug, alias, NVML name or unique prefix.

``gpu_specs/index.json`` maps every such key to a slug, so that one GPU costs one JSON and one YAML file. Keys
are in a normal form (`key_of`): lower case, with blanks and underscores as hyphens.
"""

from __future__ import annotations

import json
import re
import textwrap
from functools import cache
from pathlib import Path

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.datafiles import data_dir
from kvplan.files.gpus.file import gpu_from_located, gpu_of
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.gpu import Gpu
from kvplan.units import parse_bytes

INDEX = "index.json"
MAX_GPUS = 100_000
_SHOWN = 12
UNLISTED = "unlisted"
_SIZE = re.compile(r"\d+(\.\d+)?\s*([kmgt]i?b?|b)", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_BLANKS = re.compile(r"[\s_]+")
_NAME_FIRST = re.compile(r"(.+?)\s*[x×*]\s*(\d{1,9})", re.IGNORECASE)
_COUNT_FIRST = re.compile(r"(\d{1,9})\s*[x×*]\s*(.+)", re.IGNORECASE)


def load_gpu(query: str) -> Gpu:
    """The GPU that `query` names.

    In this order: the path of a spec file (ends in ``.yaml`` or ``.yml``), a slug, alias, family or NVML
    name, a prefix that only one GPU has (whole cards go before MIG slices). Case does not matter.

    Raises:
        KvplanError: ``unknown-gpu`` (with the nearest name) or ``ambiguous-gpu`` (with the candidates).
    """
    if query.lower().endswith((".yaml", ".yml")):
        return load_gpu_file(Path(query))
    slugs = find_slugs(query)
    if len(slugs) == 1:
        return _load_packaged(slugs[0])
    if slugs:
        raise KvplanError(
            "ambiguous-gpu",
            f"`{query}` could be any of {len(slugs)} GPUs",
            detail=_columns(slugs),
            help=f"write more of the name, for example {slugs[0]}",
        )
    raise _unknown(query)


def load_gpu_file(path: Path | str) -> Gpu:
    """The GPU of one spec file, which need not be a packaged one."""
    return gpu_from_located(load_yaml_file(path))


def list_gpus() -> list[Gpu]:
    """All packaged GPUs, by slug."""
    return [_load_packaged(slug) for slug in list_slugs()]


def list_slugs() -> list[str]:
    """The slugs of all packaged GPUs, without reading their files."""
    return sorted(set(_index().values()))


def list_keys() -> list[str]:
    """Every name that `load_gpu` takes in full, for completion."""
    return sorted(_index())


def find_slugs(query: str) -> list[str]:
    """The slugs that `query` may mean: one for a full name, several for a prefix that is not unique."""
    key = key_of(query)
    index = _index()
    if key in index:
        return [index[key]]
    if not key:
        return []
    slugs = sorted({slug for known, slug in index.items() if known.startswith(key)})
    whole = [slug for slug in slugs if "-mig-" not in slug]
    return whole or slugs


def parse_gpu_count(text: str) -> tuple[str, int]:
    """The GPU's name and how many: ``h100x8``, ``8xh100``, ``8 x h100`` and ``h100`` (one).

    A text that `find_slugs` knows is a name before it is a count (``mi300x``, ``rtx5090``, ``rtx50``). A name
    that nobody knows is returned as it is: `load_gpu` answers for it.

    Raises:
        KvplanError: ``bad-gpu-count`` where the count is 0 or above `MAX_GPUS`.
    """
    text = text.strip()
    if find_slugs(text):
        return text, 1
    trailing, leading = _NAME_FIRST.fullmatch(text), _COUNT_FIRST.fullmatch(text)
    if leading is not None and _is_name(leading[2]) and not _is_name(leading[1]):
        return leading[2], _count(leading[1], text)  # 3x4090 is no 4,090 of what begins with 3
    if trailing is not None and _names_a_gpu(trailing[1], text):
        return trailing[1], _count(trailing[2], text)
    if leading is not None and (find_slugs(leading[2]) or not _NUMBER.fullmatch(leading[2])):
        return leading[2], _count(leading[1], text)
    return text, 1


def _is_name(text: str) -> bool:
    """Whether it is a GPU's name in full."""
    return key_of(text) in _index()


def _names_a_gpu(name: str, text: str) -> bool:
    """Whether what stands before an ``x`` and digits is a GPU, so that they are a count: not where the x
    belongs to a name that many begin with (``rtx3060`` is no 3,060 times ``rt``)."""
    if _is_name(name) or gpu_of_size(name) is not None:
        return True
    return bool(find_slugs(name)) and not find_slugs(text.strip()[: len(name) + 1])


def gpu_of_size(text: str) -> Gpu | None:
    """A card that is not listed, from its memory as the runtime reports it: ``80GiB``. None for a name, and
    for a number without a unit: ``4090`` is a name. Raises KvplanError(bad-size)."""
    if not _SIZE.fullmatch(text.strip()):
        return None
    total = parse_bytes(text)
    if total <= 0:
        raise KvplanError("bad-size", f"`{text}` is no memory of a GPU", help="for example --gpu 79.2GiB")
    return Gpu(
        slug=f"unlisted-{text.strip().lower()}",
        name=f"an unlisted GPU of {text.strip()}",
        vendor="nvidia",
        arch=UNLISTED,
        memory_marketing=text.strip(),
        memory_total_bytes=total,
        memory_nvml_bytes=None,
        bandwidth_bytes_per_second=None,
        note="given by its memory only",
    )


def key_of(text: str) -> str:
    """The normal form of a name: ``NVIDIA GeForce RTX 3090`` is ``nvidia-geforce-rtx-3090``."""
    return _BLANKS.sub("-", text.strip().lower())


def build_index(folder: Path) -> dict[str, str]:
    """Read every spec in `folder` and map each lookup key to its slug.

    Raises:
        KvplanError: ``duplicate-gpu-key`` where two files claim one key, ``misnamed-gpu-spec`` where a file
            is not called after its slug.
    """
    index: dict[str, str] = {}
    for path in sorted(folder.glob("*.yaml")):
        gpu = load_gpu_file(path)
        if path.stem != gpu.slug:
            raise KvplanError(
                "misnamed-gpu-spec", f"{path.name} holds the GPU `{gpu.slug}`", help="rename the file"
            )
        for name in (gpu.slug, gpu.name, *gpu.aliases, *gpu.nvml_names, *gpu.default_for):
            key = key_of(name)
            if index.setdefault(key, gpu.slug) != gpu.slug:
                raise KvplanError(
                    "duplicate-gpu-key",
                    f"`{key}` means both {index[key]} and {gpu.slug}",
                    help="remove it from one of the two files",
                )
    return dict(sorted(index.items()))


def index_text(index: dict[str, str]) -> str:
    """The content of ``index.json``; the same index gives the same bytes."""
    return json.dumps(index, indent=0, ensure_ascii=True, sort_keys=True) + "\n"


@cache
def _index() -> dict[str, str]:
    index: dict[str, str] = json.loads((data_dir("gpu_specs") / INDEX).read_text(encoding="utf-8"))
    return index


@cache
def _load_packaged(slug: str) -> Gpu:
    path = data_dir("gpu_specs") / f"{slug}.yaml"
    return gpu_of(load_yaml_file(path, name=f"gpu_specs/{slug}.yaml").data)


def _count(digits: str, text: str) -> int:
    count = int(digits)
    if 1 <= count <= MAX_GPUS:
        return count
    raise KvplanError(
        "bad-gpu-count",
        f"`{text}` asks for {count} GPUs",
        help=f"a count is between 1 and {MAX_GPUS:,}, for example 8xh100",
    )


def _unknown(query: str) -> KvplanError:
    near = did_you_mean(key_of(query), list_keys())
    helps = [f"did you mean {near}?"] if near else [_families()]
    number = query.strip()
    if _NUMBER.fullmatch(number):
        helps.append(f"a size has a unit: {number}GiB (powers of 1024) or {number}GB (powers of 1000)")
    else:
        helps.append("one that is not listed can be given by its memory (80GiB) or a spec file")
    return KvplanError("unknown-gpu", f"unknown GPU `{query}`", help=helps)


def _families() -> str:
    """The names that a slug begins with: ``h100`` but not ``h100-pcie``."""
    begins = {key for key, slug in _index().items() if slug.startswith(f"{key}-")}
    names = [key for key in sorted(begins) if not any(key.startswith(f"{other}-") for other in begins)]
    return textwrap.fill("known families: " + ", ".join(names), width=72, break_on_hyphens=False)


def _columns(slugs: list[str]) -> list[str]:
    lines = slugs[:_SHOWN]
    return [*lines, f"and {len(slugs) - _SHOWN} more"] if len(slugs) > _SHOWN else lines
