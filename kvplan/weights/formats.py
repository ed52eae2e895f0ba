"""How a weight matrix is stored: bits for each number, scales for each group, and which modules are spared.

``Format`` gives the bytes of a matrix; ``Quantisation`` says which format a module has. Sources of the
layouts: vllm-project/vllm vllm/model_executor/layers/quantization/ (0.32), the files named at each
format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvplan.units import ceil_div


@dataclass(frozen=True, slots=True)
class Format:
    """One stored matrix of ``rows`` outputs and ``columns`` inputs.

    bits: of one number. block: (rows, columns) that share one scale; 0 stands for the whole length.
    scale_bytes: of one scale, None for the model's own element size. zero_bits: of one zero point of
    the same blocks. column_bytes: beside each input (a group index). matrix_bytes: beside each matrix (a global scale).
    numbers_in: numbers packed into one word along the inputs; a partly filled word is a whole one.
    """

    name: str
    bits: int
    block: tuple[int, int] = (0, 0)
    scale_bytes: int | None = 0
    zero_bits: int = 0
    column_bytes: int = 0
    matrix_bytes: int = 0

    def bytes_for(self, rows: int, columns: int, element_bytes: int) -> int:
        """ceil(rows × columns × bits / 8) + blocks × (scale + zero point) + what lies beside."""
        if rows == 0 or columns == 0:
            return 0
        high, wide = self.block[0] or rows, self.block[1] or columns
        blocks = ceil_div(rows, high) * ceil_div(columns, wide)
        scale = element_bytes if self.scale_bytes is None else self.scale_bytes
        return (
            ceil_div(rows * columns * self.bits, 8)
            + blocks * scale
            + ceil_div(blocks * self.zero_bits, 8)
            + columns * self.column_bytes
            + self.matrix_bytes
        )


@dataclass(frozen=True, slots=True)
class Modules:
    """A list of modules as a quantisation config writes it.

    names: whole paths or runs of whole components of one (``lm_head``, ``model.layers.0``).
    expressions: regular expressions that must match from the start (``re:.*mlp.gate$``) or, made of
    ``*`` and ``?``, the whole path.
    """

    names: frozenset[str] = frozenset()
    expressions: tuple[re.Pattern[str], ...] = ()

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        parts = path.split(".")
        runs = (
            ".".join(parts[start:end])
            for start in range(len(parts))
            for end in range(start + 1, len(parts) + 1)
        )
        return any(run in self.names for run in runs) or any(
            expression.match(path) for expression in self.expressions
        )


@dataclass(frozen=True, slots=True, eq=False)
class Quantisation:
    """Which module is stored how.

    method: the checkpoint's word. linear: the format of every linear module that no rule names.
    rules: (modules, format or None for unquantised); the first that holds a module's path decides.
    head: whether the output head is stored so too. experts_only: nothing but experts is.
    """

    method: str = ""
    linear: Format | None = None
    rules: tuple[tuple[Modules, Format | None], ...] = ()
    head: bool = False
    experts_only: bool = False

    def format_of(self, path: str, *, expert: bool = False, head: bool = False) -> Format | None:
        """The format of the module at this path, or None where it is stored as it was trained."""
        if not self.method or (head and not self.head):
            return None
        for modules, form in self.rules:
            if path in modules:
                return form
        return None if self.experts_only and not expert else self.linear


UNQUANTISED = Quantisation()
