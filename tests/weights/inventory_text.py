"""An inventory as plain data and back: what a model card keeps of a config's tensors.

A tensor is one text: ``role rows x columns``, dimensions joined by ``*``, each a whole number and a letter
for its split (none: whole, ``/`` divided, ``k`` divided but at least one, ``v`` vocabulary, ``e`` experts,
``w`` an expert's width, ``w256`` with the least share, ``s`` a shared expert's width); ``[…]`` before the
rows is the stack of experts, ``as float32`` a fixed element type, ``in a`` one of the named formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from kvplan.errors import KvplanError
from kvplan.weights.formats import Format
from kvplan.weights.inventory import Block, Dim, Inventory, Place, Placed, Role, Split, Tensor

_LETTERS = {
    Split.WHOLE: "",
    Split.EVEN: "/",
    Split.HEADS_KEPT: "k",
    Split.VOCABULARY: "v",
    Split.EXPERTS: "e",
    Split.EXPERT_WIDTH: "w",
    Split.SHARED_EXPERT: "s",
}
_SPLITS = {letter: split for split, letter in _LETTERS.items()}
_DIM = re.compile(r"(\d{1,12})(?:([/kvews])(\d{0,6}))?", re.ASCII)
_TENSOR = re.compile(
    r"(?P<role>[a-z]+)(?: \[(?P<stack>[^\]]*)\])? (?P<rows>[^ ]+)(?: x (?P<columns>[^ ]+))?"
    r"(?: as (?P<dtype>[a-z0-9_ ]+?))?(?: in (?P<form>[a-z]{1,3}))?"
)
_RUN = re.compile(r"(\d{1,5}) ([a-z]{1,3})", re.ASCII)
MAX_LAYERS = 4096


def dump_inventory(inventory: Inventory) -> dict[str, Any]:
    """Plain dicts, lists, texts and numbers; equal inventories give equal data."""
    forms: dict[Format, str] = {}
    kinds: dict[tuple[Tensor, ...], str] = {}

    def table(tensors: tuple[Tensor, ...]) -> list[list[str]]:
        return [[tensor.name, _tensor_text(tensor, forms)] for tensor in tensors]

    def runs(blocks: tuple[Block, ...]) -> str:
        made: list[list[Any]] = []
        for block in blocks:
            kind = kinds.setdefault(block.tensors, _letters(len(kinds)))
            if made and made[-1][1] == kind:
                made[-1][0] += 1
            else:
                made.append([1, kind])
        return ", ".join(f"{count} {kind}" for count, kind in made)

    layers, draft = runs(inventory.layers), runs(inventory.draft)
    data: dict[str, Any] = {
        "ends": _ends_data(inventory.ends, forms),
        "kinds": {kind: table(tensors) for tensors, kind in kinds.items()},
        "layers": layers,
    }
    if draft:
        data["draft"] = draft
    if forms:
        data["formats"] = {name: _format_data(form) for form, name in forms.items()}
    if inventory.dtype:
        data["dtype"] = inventory.dtype
    if inventory.quantisation:
        data["quantisation"] = inventory.quantisation
    return data


def load_inventory(data: Mapping[str, Any]) -> Inventory:
    """The inventory that dump_inventory wrote. Raises KvplanError(bad-inventory)."""
    try:
        forms = {str(name): _format(entry) for name, entry in data.get("formats", {}).items()}
        kinds = {
            str(kind): tuple(_tensor(str(name), text, forms) for name, text in entries)
            for kind, entries in data["kinds"].items()
        }
        ends = tuple(
            Placed(Place(place), _tensor(str(name).replace("#", "0"), text, forms), _times(times))
            for place, name, text, *times in data["ends"]
        )
        layers, draft = _blocks(data["layers"], kinds), _blocks(data.get("draft", ""), kinds)
    except KvplanError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(f"{type(error).__name__}: {error}") from error
    dtype, method = data.get("dtype"), data.get("quantisation")
    return Inventory(ends, layers, draft, None if dtype is None else str(dtype), str(method or ""))


def _ends_data(ends: tuple[Placed, ...], forms: dict[Format, str]) -> list[list[Any]]:
    """Place, name and text; equal tensors of numbered layers (a vision tower's) once, with their number."""
    counts: dict[tuple[str, str, str], int] = {}
    for entry in ends:
        text = _tensor_text(entry.tensor, forms)
        name = entry.tensor.name
        if entry.times > 1:
            name = name.replace(".0.", ".#.", 1)
        elif len(re.findall(r"\.\d+\.", name)) == 1:
            name = re.sub(r"\.\d+\.", ".#.", name)
        key = (entry.place.value, name, text)
        counts[key] = counts.get(key, 0) + entry.times
    return [[*key, count] if count > 1 else [*key] for key, count in counts.items()]


def _times(times: list[Any]) -> int:
    count = times[0] if times else 1
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_LAYERS:
        raise _bad(f"{count!r} is not a number of layers")
    return count


def _letters(number: int) -> str:
    text = ""
    while True:
        number, rest = divmod(number, 26)
        text = chr(ord("a") + rest) + text
        if number == 0:
            return text
        number -= 1


def _dims_text(dims: tuple[Dim, ...]) -> str:
    return "*".join(f"{dim.value}{_LETTERS[dim.split]}{dim.least if dim.least else ''}" for dim in dims)


def _tensor_text(tensor: Tensor, forms: dict[Format, str]) -> str:
    text = tensor.role.value
    if tensor.stack:
        text += f" [{_dims_text(tensor.stack)}]"
    text += f" {_dims_text(tensor.rows)}"
    if tensor.columns:
        text += f" x {_dims_text(tensor.columns)}"
    if tensor.dtype:
        text += f" as {tensor.dtype}"
    if tensor.form is not None:
        text += f" in {forms.setdefault(tensor.form, _letters(len(forms)))}"
    return text


def _dims(text: str | None) -> tuple[Dim, ...]:
    made = []
    for part in (text or "").split("*"):
        match = _DIM.fullmatch(part)
        if match is None:
            raise _bad(f"{part[:40]!r} is not a dimension")
        split = _SPLITS[match[2] or ""]
        made.append(Dim(split.value, int(match[1]), split, int(match[3] or 0)))
    return tuple(made)


def _tensor(name: str, text: Any, forms: Mapping[str, Format]) -> Tensor:
    match = _TENSOR.fullmatch(text) if isinstance(text, str) and len(text) < 300 else None
    if match is None:
        raise _bad(f"{str(text)[:60]!r} is not a tensor")
    return Tensor(
        name,
        _dims(match["rows"]),
        _dims(match["columns"]) if match["columns"] else (),
        _dims(match["stack"]) if match["stack"] else (),
        Role(match["role"]),
        match["dtype"],
        forms[match["form"]] if match["form"] else None,
    )


def _blocks(text: Any, kinds: Mapping[str, tuple[Tensor, ...]]) -> tuple[Block, ...]:
    made: list[Block] = []
    for part in str(text).split(", ") if text else ():
        match = _RUN.fullmatch(part)
        if match is None or len(made) + int(match[1]) > MAX_LAYERS:
            raise _bad(f"{part[:40]!r} is not a run of layers")
        made += [Block(str(len(made) + index), kinds[match[2]]) for index in range(int(match[1]))]
    return tuple(made)


def _format_data(form: Format) -> list[Any]:
    *plain, act_order = astuple(form)
    return [list(entry) if isinstance(entry, tuple) else entry for entry in (*plain, *[True] * act_order)]


def _format(entry: Any) -> Format:
    name, bits, block, scale, zeros, column, matrix, *ordered = entry
    numbers = (bits, *block, zeros, column, matrix)
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in numbers):
        raise _bad("a format has something other than whole numbers")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int) or scale < 0):
        raise _bad("a format has no proper scale")
    if ordered not in ([], [True]):
        raise _bad("a format does not say whether its groups are in order")
    return Format(str(name), bits, (block[0], block[1]), scale, zeros, column, matrix, bool(ordered))


def _bad(why: str) -> KvplanError:
    return KvplanError("bad-inventory", f"this is not a list of tensors: {why}")
