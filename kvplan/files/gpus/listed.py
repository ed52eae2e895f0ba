"""The GPUs that have a file, by slug, alias, NVML name or unique prefix.

``gpu_specs/index.json`` maps every such key to a slug (to several where one card is sold with several
memories), so that one GPU costs one JSON and one YAML file. Keys are in a normal form (`key_of`): lower case,
with blanks and underscores as hyphens. A text that is no key is compared without its hyphens and its maker's
name (`squeezed`): ``RTX 4060Ti 16GB``, ``5070ti``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.datafiles import data_dir, read_packaged
from kvplan.files.gpus.file import gpu_from_located, gpu_of
from kvplan.files.yaml import packaged
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.record import replace

FOLDER, INDEX = "gpu_specs", "index.json"
_BLANKS = regex(r"[\s_]+")
_BESIDE = regex(r"[^a-z0-9+.]+", re.ASCII)
_MAKERS = regex(r"(?:nvidia|geforce|amd|radeon|intel|apple|google|huawei)+", re.ASCII)
_COUNTED = regex(r"[×*]")
_WORDS = regex(r"[a-z0-9+]+", re.ASCII)
_AMOUNT = regex(r"(\d+)[\s_-]*g(?:i?b)?(?![a-z0-9])", re.ASCII)
_SERIES = regex(r"(?<!\d)(\d{4})(?=[a-z])", re.ASCII)
_OTHERWISE = {"mobile": "laptop", "m": "laptop", "sxm5": "sxm", "sxm4": "sxm", "sxm2": "sxm"}
_UNSAID = frozenset(
    "nvidia geforce amd radeon intel apple google huawei edition generation gpu graphics".split()
)


def memories_of(gpu: Gpu) -> list[Gpu]:
    """The same card with each of the memories that it is sold with."""
    stem = re.compile(re.escape(gpu.slug.rpartition("-")[0]) + r"-\d+gb")
    found = (load_listed(slug) for slug in list_slugs() if stem.fullmatch(slug))
    return [one for one in found if one.name == gpu.name] or [gpu]


def with_memory(gpu: Gpu, gigabytes: int) -> Gpu:
    """A Mac's chip as it is sold with another memory."""
    stem = gpu.slug.rpartition("-")[0]
    return replace(gpu, slug=f"{stem}-{gigabytes}gb", memory_marketing=f"{gigabytes} GB")


def load_gpu_file(path: Path | str) -> Gpu:
    """The GPU of one spec file, which need not be a packaged one."""
    from kvplan.files.yaml.strict import load_yaml_file

    return gpu_from_located(load_yaml_file(path))


def list_gpus() -> list[Gpu]:
    """All packaged GPUs, by slug."""
    return [load_listed(slug) for slug in list_slugs()]


def list_slugs() -> list[str]:
    """The slugs of all packaged GPUs, without reading their files."""
    return sorted({slug for slugs in _index().values() for slug in slugs})


def list_keys() -> list[str]:
    """Every name that `load_gpu` takes in full, for completion."""
    return sorted(_index())


def find_slugs(query: str) -> list[str]:
    """The slugs that `query` may mean: one for a full name, several for a prefix that is not unique and for
    a card that is sold with several memories."""
    key = key_of(query)
    if named := _named(key):
        return named
    index, short = _index(), squeezed(query)
    if short in _short_index() and not _COUNTED.search(query):
        return list(_short_index()[short])
    if not key:
        return []
    begun = [known for known in index if known.startswith(key)]
    found = sorted({slug for known in begun for slug in index[known]})
    found = [slug for slug in found if "-mig-" not in slug] or found
    if len(found) == 1 and all(_cuts_a_number(key, known) for known in begun):
        return []  # an L2 is no L20
    return found or _by_words(query)


def _cuts_a_number(key: str, known: str) -> bool:
    return key[-1].isdigit() and known[len(key) : len(key) + 1].isdigit()


def _by_words(query: str) -> list[str]:
    """The GPUs in one of whose names every word of the query stands, in any order: ``RTX 6000 Pro``,
    ``9060 XT 16 GB``. A name of just these words goes before longer ones; laptops and slices are not meant
    where nothing says so."""
    asked = _words(query)
    if len(asked) < 2 and not any(char.isdigit() for word in asked for char in word):
        return []
    named = [(words, slugs) for words, slugs in _word_index() if asked <= words]
    whole = [slugs for words, slugs in named if words == asked]
    found = sorted({slug for slugs in whole or [one for _, one in named] for slug in slugs})
    for part in ("-mig-", "-laptop-"):
        found = [slug for slug in found if part not in slug] or found
    return found


def _words(text: str) -> frozenset[str]:
    plain = _SERIES.sub(r"\1 ", _AMOUNT.sub(r" \1gb ", text.lower()))
    words = (_OTHERWISE.get(word, word) for word in _WORDS.findall(plain))
    return frozenset(word for word in words if word not in _UNSAID)


def key_of(text: str) -> str:
    """The normal form of a name: ``NVIDIA GeForce RTX 3090`` is ``nvidia-geforce-rtx-3090``."""
    return _BLANKS.sub("-", text.strip().lower())


def squeezed(text: str) -> str:
    """A name without what people leave out or put in: ``NVIDIA GeForce RTX 4060 Ti`` is ``rtx4060ti``."""
    return _MAKERS.sub("", _BESIDE.sub("", text.lower()), count=1)


def build_index(folder: Path) -> dict[str, str | list[str]]:
    """Read every spec in `folder` and map each lookup key to its slug; to several where files of one name (a
    card that is sold with several memories) share it and none of them is its family's default.

    Raises:
        KvplanError: ``duplicate-gpu-key`` where two GPUs claim one key, ``misnamed-gpu-spec`` where a file
            is not called after its slug.
    """
    index: dict[str, list[Gpu]] = {}
    for path in sorted(folder.glob("*.yaml")):
        gpu = load_gpu_file(path)
        if path.stem != gpu.slug:
            raise KvplanError(
                "misnamed-gpu-spec", f"{path.name} holds the GPU `{gpu.slug}`", help="rename the file"
            )
        for name in (gpu.slug, gpu.name, *gpu.aliases, *gpu.nvml_names, *gpu.default_for):
            owners = index.setdefault(key_of(name), [])
            if gpu in owners:
                continue
            if any(owner.name != gpu.name for owner in owners):
                raise KvplanError(
                    "duplicate-gpu-key",
                    f"`{key_of(name)}` means both {owners[0].slug} and {gpu.slug}",
                    help="remove it from one of the two files",
                )
            owners.append(gpu)
    return {key: _meant(owners) for key, owners in sorted(index.items())}


def _meant(owners: list[Gpu]) -> str | list[str]:
    """One slug where one of a card's memories is its family's default, else those of all."""
    usual = [gpu for gpu in owners if gpu.default_for]
    found = usual if len(usual) == 1 else owners
    return found[0].slug if len(found) == 1 else [gpu.slug for gpu in found]


def index_text(index: dict[str, str | list[str]]) -> str:
    """The content of ``index.json``; the same index gives the same bytes."""
    return json.dumps(index, indent=0, ensure_ascii=True, sort_keys=True) + "\n"


@cache
def _text() -> str:
    return (data_dir(FOLDER) / INDEX).read_text(encoding="utf-8")


def _named(key: str) -> list[str]:
    """The slugs of a name in full, looked up in the text of the index; most questions ask for no other."""
    entry = f"\n{json.dumps(key)}: "
    at = _text().find(entry) + len(entry)
    if at < len(entry):
        return []
    slugs = json.JSONDecoder().raw_decode(_text(), at)[0]
    return [slugs] if isinstance(slugs, str) else slugs


@cache
def _index() -> dict[str, tuple[str, ...]]:
    index = json.loads(_text())
    return {key: (slugs,) if isinstance(slugs, str) else tuple(slugs) for key, slugs in index.items()}


@cache
def _short_index() -> dict[str, tuple[str, ...]]:
    return {short: slugs for key, slugs in _index().items() if (short := squeezed(key))}


@cache
def _word_index() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    return tuple((_words(key), slugs) for key, slugs in _index().items())


@cache
def load_listed(slug: str) -> Gpu:
    """The packaged GPU of that slug."""
    return gpu_of(packaged.located(read_packaged(FOLDER, slug), f"{FOLDER}/{slug}.yaml").data)


def is_listed(text: str) -> bool:
    """Whether it is a GPU's name in full."""
    return bool(_named(key_of(text))) or (squeezed(text) in _short_index() and not _COUNTED.search(text))
