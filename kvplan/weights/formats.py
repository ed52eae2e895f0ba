"""How a weight matrix is stored: bits for each number, and a scale for each group of numbers.

Source of the layouts: vllm-project/vllm vllm/model_executor/layers/quantization/ (0.32).
"""

from __future__ import annotations

from kvplan.record import KeptHash, record, replace
from kvplan.units import ceil_div


@record()
class Format(KeptHash):
    """One stored matrix of ``rows`` outputs and ``columns`` inputs."""

    name: str
    bits: int
    """of one number"""
    block: tuple[int, int] = (0, 0)
    """(rows, columns) that share one scale; 0 stands for the whole length"""
    scale_bytes: int | None = 0
    """of one scale, None for the model's own element size"""
    zero_bits: int = 0
    """of one zero point of the same blocks"""
    column_bytes: int = 0
    """beside each input (a group index)"""
    matrix_bytes: int = 0
    """beside each matrix (a global scale)"""
    act_order: bool = False
    """the groups' indices are not in the order of the inputs, so that kernels need them"""

    @property
    def without_indices(self) -> Format:
        """As kernels keep it that take the groups to be in the order of the inputs."""
        return self if self.act_order or not self.column_bytes else replace(self, column_bytes=0)

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


PLAIN = ""
"""Experts in the model's own element size."""


@record()
class Kernel:
    """How a kernel keeps experts: what it pads, and what it keeps beside."""

    name: str
    width: int = 1
    """width, hidden: multiples to which an expert's two sizes are padded on the rank"""
    hidden: int = 1
    scale_rows: int = 1
    """scale_rows, scale_columns: of the table of scales, once rearranged; gate and up are one matrix"""
    scale_columns: int = 1
    keeps_scales: bool = False
    """the table as it was loaded stays beside the rearranged one"""
    bias_bytes: int = 0
    """of one bias, 0 for the model's own element size"""
    unpacked: bool = False
    """the numbers are made whole in the model's own element size as they load, without scales"""
    stores: str = "mxfp4"
    """the format (`Format.name`) of the experts that it keeps so, `PLAIN` for those that are not quantised"""

    def keeps(self, form: Format | None) -> bool:
        """Whether experts of this format are kept as the kernel wants them."""
        return self.stores == (PLAIN if form is None else form.name)


FP8_TENSOR = Format("fp8, one scale a matrix", 8, matrix_bytes=8)
FP8_CHANNEL = Format("fp8, one scale an output", 8, (1, 0), 4)
INT8_CHANNEL = Format("int8, one scale an output", 8, (1, 0), 4)
NVFP4 = Format("nvfp4", 4, (1, 16), 1, matrix_bytes=8)
MXFP4 = Format("mxfp4", 4, (1, 32), 1)
MXFP8 = Format("mxfp8", 8, (1, 32), 1)


def fp8_block(rows: int, columns: int, scale_bytes: int = 4) -> Format:
    """FP8 with one scale for each block of rows × columns."""
    return Format(f"fp8, blocks of {rows} × {columns}", 8, (rows, columns), scale_bytes)


def grouped(
    bits: int,
    group: int,
    *,
    zeros: bool,
    column_bytes: int = 0,
    matrix_bytes: int = 0,
    act_order: bool = False,
) -> Format:
    """Integers with a scale (and a zero point) for each group of inputs; group 0: a whole row."""
    name = f"int{bits}, groups of {group or 'a row'}"
    zero_bits = bits if zeros else 0
    return Format(name, bits, (1, group), None, zero_bits, column_bytes, matrix_bytes, act_order=act_order)


def bnb_4bit(*, double: bool) -> Format:
    """bitsandbytes NF4 or FP4: blocks of 64 numbers; double quantisation stores their scales in one byte."""
    return Format("bitsandbytes 4 bit", 4, (1, 64), 1 if double else 4)
