"""Finding a GPU by slug, alias, NVML name or unique prefix.

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

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.datafiles import behind, data_dir
from kvplan.files.gpus.file import gpu_from_located, gpu_of
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.gpu import Gpu
from kvplan.record import replace
from kvplan.units import parse_bytes

INDEX = "index.json"
MAX_GPUS = 100_000
_SHOWN = 12
UNLISTED = "unlisted"
_SIZE = re.compile(r"\d+(\.\d+)?\s*([kmgt]|([kmgt]i?)?b)", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_BLANKS = re.compile(r"[\s_]+")
_BESIDE = re.compile(r"[^a-z0-9+.]+", re.ASCII)
_MAKERS = re.compile(r"(?:nvidia|geforce|amd|radeon|intel|apple|google|huawei)+", re.ASCII)
_COUNTED = re.compile(r"[×*]")
_WORDS = re.compile(r"[a-z0-9+]+", re.ASCII)
_AMOUNT = re.compile(r"(\d+)[\s_-]*g(?:i?b)?(?![a-z0-9])", re.ASCII)
_SERIES = re.compile(r"(?<!\d)(\d{4})(?=[a-z])", re.ASCII)
_OTHERWISE = {"mobile": "laptop", "m": "laptop", "sxm5": "sxm", "sxm4": "sxm", "sxm2": "sxm"}
_UNSAID = frozenset(
    "nvidia geforce amd radeon intel apple google huawei edition generation gpu graphics".split()
)
_NAME_FIRST = re.compile(r"(.+?)[\s_-]*[x×*]\s*(\d{1,9})", re.IGNORECASE)
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
    if (other := _variant(query)) is not None:
        return other
    if slugs:
        raise KvplanError(
            "ambiguous-gpu",
            f"`{query}` could be any of {len(slugs)} GPUs",
            detail=_columns(slugs),
            help=f"write more of the name, for example {slugs[0]}",
        )
    raise _unknown(query)


def memories_of(gpu: Gpu) -> list[Gpu]:
    """The same card with each of the memories that it is sold with."""
    stem = re.compile(re.escape(gpu.slug.rpartition("-")[0]) + r"-\d+gb")
    found = (_load_packaged(slug) for slug in list_slugs() if stem.fullmatch(slug))
    return [one for one in found if one.name == gpu.name] or [gpu]


def with_memory(gpu: Gpu, gigabytes: int) -> Gpu:
    """A Mac's chip as it is sold with another memory."""
    stem = gpu.slug.rpartition("-")[0]
    return replace(gpu, slug=f"{stem}-{gigabytes}gb", memory_marketing=f"{gigabytes} GB")


def load_gpu_file(path: Path | str) -> Gpu:
    """The GPU of one spec file, which need not be a packaged one."""
    return gpu_from_located(load_yaml_file(path))


def list_gpus() -> list[Gpu]:
    """All packaged GPUs, by slug."""
    return [_load_packaged(slug) for slug in list_slugs()]


def list_slugs() -> list[str]:
    """The slugs of all packaged GPUs, without reading their files."""
    return sorted({slug for slugs in _index().values() for slug in slugs})


def list_keys() -> list[str]:
    """Every name that `load_gpu` takes in full, for completion."""
    return sorted(_index())


def find_slugs(query: str) -> list[str]:
    """The slugs that `query` may mean: one for a full name, several for a prefix that is not unique and for
    a card that is sold with several memories."""
    key, index, short = key_of(query), _index(), squeezed(query)
    if key in index:
        return list(index[key])
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


def _variant(query: str) -> Gpu | None:
    """A GPU that is one of those listed in another form; looked at only where no name is meant."""
    from kvplan.files.gpus.variants import variant_of

    return variant_of(query)


def is_name(text: str) -> bool:
    """Whether it is a GPU's name in full, with or without a count: ``RTX 3060``, ``2xh100``."""
    try:
        return _is_name(parse_gpu_count(text)[0])
    except KvplanError:
        return False


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
    if leading is not None and (
        find_slugs(leading[2]) or not (_NUMBER.fullmatch(leading[2]) or _is_model(text))
    ):
        return leading[2], _count(leading[1], text)
    return text, 1


def _is_model(text: str) -> bool:
    """Whether four digits and ``XT`` begin it, as Radeons are called: no count."""
    return re.match(r"\d{4}\s*xtx?(?![a-z])", text, re.IGNORECASE) is not None


def _is_name(text: str) -> bool:
    """Whether it is a GPU's name in full."""
    return key_of(text) in _index() or (squeezed(text) in _short_index() and not _COUNTED.search(text))


def _names_a_gpu(name: str, text: str) -> bool:
    """Whether what stands before an ``x`` and digits is a GPU, so that they are a count: not where the x
    belongs to a name that many begin with (``rtx3060`` is no 3,060 times ``rt``)."""
    if _is_name(name) or gpu_of_size(name) is not None:
        return True
    has_digit = any(char.isdigit() for char in name)  # MX450 is no 450 of what begins with M
    return has_digit and bool(find_slugs(name)) and not find_slugs(text.strip()[: len(name) + 1])


def gpu_of_size(text: str) -> Gpu | None:
    """A card that is not listed, from its memory as the runtime reports it: ``80GiB``. None for a name, and
    for a number without a unit: ``4090`` is a name. Raises KvplanError(bad-size)."""
    if not _SIZE.fullmatch(text.strip()) or _is_name(text):
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
def _index() -> dict[str, tuple[str, ...]]:
    index = json.loads((data_dir("gpu_specs") / INDEX).read_text(encoding="utf-8"))
    return {key: (slugs,) if isinstance(slugs, str) else tuple(slugs) for key, slugs in index.items()}


@cache
def _short_index() -> dict[str, tuple[str, ...]]:
    return {short: slugs for key, slugs in _index().items() if (short := squeezed(key))}


@cache
def _word_index() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    return tuple((_words(key), slugs) for key, slugs in _index().items())


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
    from kvplan.files.cards.index import find_targets

    if len(find_targets(query)) == 1:
        return KvplanError(
            "unknown-gpu", f"`{query}` is a model, and a GPU is wanted here",
            help=f"kvplan size {query} --gpu h100",
        )  # fmt: skip
    from kvplan.files.launch.machines import gpu_of_label

    label = gpu_of_label(query)
    if label is not None:
        return KvplanError(
            "unknown-gpu", f"`{query}` is a machine's or a label's name",
            help=f"its GPU: --gpu {label}",
        )  # fmt: skip
    helps = behind("gpu_specs", list_slugs(), "python -m scripts.make_gpu_specs --index-only")
    near = did_you_mean(key_of(query), list_keys())
    known = f"`kvplan list gpus` lists all {len(list_slugs())}: h100, rtx-3090, mi300x, m4-max …"
    helps = helps or [f"did you mean {near}?" if near else known]
    number = query.strip()
    if _NUMBER.fullmatch(number):
        helps.append(f"a size has a unit: {number}GiB (powers of 1024) or {number}GB (powers of 1000)")
    else:
        helps.append("one that is not listed can be given by its memory (80GiB) or a spec file")
    return KvplanError("unknown-gpu", f"unknown GPU `{query}`", help=helps)


def _columns(slugs: list[str]) -> list[str]:
    lines = slugs[:_SHOWN]
    return [*lines, f"and {len(slugs) - _SHOWN} more"] if len(slugs) > _SHOWN else lines
