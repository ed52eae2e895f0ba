"""Finding the GPU that a user names: listed, in another form than its file's, by its memory, with a count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.datafiles import behind
from kvplan.files.gpus.listed import (
    find_slugs,
    is_listed,
    key_of,
    list_keys,
    list_slugs,
    load_gpu_file,
    load_listed,
)
from kvplan.gpu import Gpu
from kvplan.later import later, regex
from kvplan.units import parse_bytes

if TYPE_CHECKING:
    from kvplan.files.gpus import variants
    from kvplan.files.launch import machines
else:
    variants = later("kvplan.files.gpus", "variants")
    machines = later("kvplan.files.launch", "machines")

MAX_GPUS = 100_000
_SHOWN = 12
UNLISTED = "unlisted"
_SIZE = regex(r"\d+(\.\d+)?\s*([kmgt]|([kmgt]i?)?b)", re.IGNORECASE | re.ASCII)
_NUMBER = regex(r"\d+(\.\d+)?", re.ASCII)
_AMOUNT_ALONE = regex(r".*[a-z0-9][\s_-]+\d{1,3}\s*", re.IGNORECASE | re.ASCII)
_NAME_FIRST = regex(r"(.+?)[\s_-]*[x×*]\s*(\d{1,9})", re.IGNORECASE)
_COUNT_FIRST = regex(r"(\d{1,9})\s*[x×*]\s*(.+)", re.IGNORECASE)


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
        return load_listed(slugs[0])
    if (other := variants.variant_of(query)) is not None:
        return other
    if slugs:
        raise KvplanError(
            "ambiguous-gpu",
            f"`{query}` could be any of {len(slugs)} GPUs",
            detail=_columns(slugs),
            help=f"write more of the name, for example {slugs[0]}",
        )
    if _AMOUNT_ALONE.fullmatch(query):  # M4 Max 64, m4-pro-48: a name with its memory, and no unit
        try:
            return load_gpu(f"{query}GB")
        except KvplanError as error:
            if error.code == "bad-size":
                raise
    raise _unknown(query)


def is_name(text: str) -> bool:
    """Whether it is a GPU's name in full, with or without a count: ``RTX 3060``, ``2xh100``."""
    try:
        return is_listed(parse_gpu_count(text)[0])
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
    if leading is not None and is_listed(leading[2]) and not is_listed(leading[1]):
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


def _names_a_gpu(name: str, text: str) -> bool:
    """Whether what stands before an ``x`` and digits is a GPU, so that they are a count: not where the x
    belongs to a name that many begin with (``rtx3060`` is no 3,060 times ``rt``)."""
    if is_listed(name) or gpu_of_size(name) is not None:
        return True
    has_digit = any(char.isdigit() for char in name)  # MX450 is no 450 of what begins with M
    return has_digit and bool(find_slugs(name)) and not find_slugs(text.strip()[: len(name) + 1])


def gpu_of_size(text: str) -> Gpu | None:
    """A card that is not listed, from its memory as the runtime reports it: ``80GiB``. None for a name, and
    for a number without a unit: ``4090`` is a name. Raises KvplanError(bad-size)."""
    if not text.strip()[:1].isdigit() or not _SIZE.fullmatch(text.strip()) or is_listed(text):
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
    label = machines.gpu_of_label(query)
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
