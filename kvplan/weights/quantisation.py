"""Which module of a checkpoint is stored in which format."""

from __future__ import annotations

import re

from kvplan.record import record, replace
from kvplan.weights.formats import Format
from kvplan.weights.inventory import Block, Inventory, Placed, Role, Tensor


@record()
class Modules:
    """A list of modules as a quantisation config writes it; the engines read such lists in three ways.

    exact: whole paths. inside: texts that a path contains. expressions: regular expressions that must
    match from the start of the path.
    """

    exact: frozenset[str] = frozenset()
    inside: tuple[str, ...] = ()
    expressions: tuple[re.Pattern[str], ...] = ()

    def __contains__(self, path: str) -> bool:
        if path in self.exact:
            return True
        for text in self.inside:  # a loop, for any() takes twice as long: checkpoints have 100,000 paths
            if text in path:
                return True
        return bool(self.expressions) and any(one.match(path) for one in self.expressions)


@record(eq=False)
class Quantisation:
    """Which module is stored how.

    method: the checkpoint's word. linear: the format of every linear module that no rule names.
    rules: (modules, format or None for unquantised); the first that holds a module's path decides.
    head: whether the output head is stored so too. experts: the format of experts where it is another.
    """

    method: str = ""
    linear: Format | None = None
    rules: tuple[tuple[Modules, Format | None], ...] = ()
    head: bool = False
    experts: Format | None = None

    def format_of(self, path: str, *, expert: bool = False, head: bool = False) -> Format | None:
        """The format of the module at this path, or None where it is stored as it was trained."""
        if not self.method or (head and not self.head):
            return None
        for modules, form in self.rules:
            if path in modules:
                return form
        return self.experts if expert and self.experts is not None else self.linear


UNQUANTISED = Quantisation()


def quantised(inventory: Inventory, quantisation: Quantisation) -> Inventory:
    """The inventory with every matrix in the format that its module is stored in."""
    if not quantisation.method:
        return inventory
    seen: dict[tuple[tuple[Tensor, ...], tuple[Format | None, ...]], tuple[Tensor, ...]] = {}

    def block(entry: Block) -> Block:
        tensors, start = entry.tensors, f"{entry.path}."
        forms = tuple(_form(tensor, start + tensor.name, quantisation) for tensor in tensors)
        made = seen.get((tensors, forms))
        if made is None:
            made = seen[tensors, forms] = tuple(map(_in_form, tensors, forms))
        return Block(entry.path, made)

    return Inventory(
        tuple(made for end in inventory.ends for made in _ends(end, quantisation)),
        tuple(block(entry) for entry in inventory.layers),
        tuple(block(entry) for entry in inventory.draft),
        inventory.dtype,
        quantisation.method,
    )


def _ends(end: Placed, quantisation: Quantisation) -> list[Placed]:
    """Tensors outside the layers; a vision encoder's blocks once for each format that some of them have."""
    counts: dict[Tensor, int] = {}
    for name in end.names():
        tensor = _in_form(end.tensor, _form(end.tensor, name, quantisation))
        counts[tensor] = counts.get(tensor, 0) + 1
    return [Placed(end.place, tensor, times) for tensor, times in counts.items()]


def _form(tensor: Tensor, path: str, quantisation: Quantisation) -> Format | None:
    """The format of a tensor's module, None where it stays as it is."""
    role = tensor.role
    if role is Role.OTHER or role is Role.EMBEDDING:
        return None
    return quantisation.format_of(
        path.removesuffix(".bias"), expert=role is Role.EXPERT, head=role is Role.HEAD
    )


def _in_form(tensor: Tensor, form: Format | None) -> Tensor:
    return tensor if form is None else replace(tensor, form=form)
