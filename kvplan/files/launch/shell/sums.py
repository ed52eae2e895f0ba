"""Arithmetic of the shell on whole numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kvplan.files.launch.shell.grammar import named, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST = 2**63


def _quotient(left: int, right: int) -> int:
    """Towards zero, as C divides."""
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne, "&&": lambda left, right: bool(left and right),
    "||": lambda left, right: bool(left or right),
    "<<": lambda left, right: left << min(right, 64) if right >= 0 else 0,
    ">>": lambda left, right: left >> min(right, 64) if right >= 0 else 0,
    "**": lambda left, right: left**right if 0 <= right <= 64 else _MOST,
}  # fmt: skip


def value(node: Node, text: Callable[[Node], str]) -> int | None:
    """The value of a node; None where a part is not known. text: of a variable, or another word."""
    inner = named(node)
    if node.type in ("arithmetic_expansion", "parenthesized_expression", "compound_statement"):
        return value(inner[-1], text) if inner else 0
    if node.type == "binary_expression" and len(inner) == 2:
        left, right = value(inner[0], text), value(inner[1], text)
        sign = node.child_by_field_name("operator")
        apply = _OPERATORS.get("" if sign is None else text_of(sign))
        if left is None or right is None or apply is None:
            return None
        try:
            total = int(apply(left, right))
        except ZeroDivisionError:
            return None
        return total if abs(total) < _MOST else None
    if node.type == "unary_expression" and inner:
        of = value(inner[-1], text)
        return None if of is None else -of if text_of(node).startswith("-") else int(not of)
    if node.type == "ternary_expression" and len(inner) == 3:
        of = value(inner[0], text)
        return None if of is None else value(inner[1 if of else 2], text)
    if node.type == "number":
        return _number(text_of(node))
    return _number(text(node))


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII) else None
