"""The outcome of a test of the shell, as far as the script says it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kvplan.files.launch.shell.expand import Expander
from kvplan.files.launch.shell.grammar import named, text_of
from kvplan.files.launch.unknown import unknowns, without
from kvplan.named import NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node


class Truth(NamedTuple):
    """The outcome of a condition, None where nothing says. sure: not because a variable that the script does
    not set is taken as empty."""

    said: bool | None
    sure: bool = True
    default: bool = False
    """because of a value that the script takes where nobody says another"""

    def negated(self) -> Truth:
        return self._replace(said=None if self.said is None else not self.said)


UNKNOWN = Truth(None, False)
_NUMBERS = {
    "-eq": "__eq__", "-ne": "__ne__", "-gt": "__gt__", "-lt": "__lt__", "-ge": "__ge__", "-le": "__le__",
}  # fmt: skip


def truth(node: Node, expander: Expander) -> Truth:
    """Of a test; one that rests on a default is not sure."""
    found = _truth(node, expander)
    by_default = expander.default and found.sure
    return found._replace(sure=found.sure and not by_default, default=found.default or by_default)


def _truth(node: Node, expander: Expander) -> Truth:
    """Of ``[ … ]``, ``[[ … ]]``, ``test …``, ``(( … ))``, ``true``."""
    inner = named(node)
    if node.type in ("test_command", "parenthesized_expression") and len(inner) == 1:
        return _truth(inner[0], expander)
    if node.type == "negated_command" and inner:
        return _truth(inner[-1], expander).negated()
    if node.type == "compound_statement" and text_of(node).startswith("(("):
        number = expander.number(node)
        return UNKNOWN if number is None else Truth(bool(number))
    if node.type == "binary_expression" and len(inner) >= 2:
        return _binary(node, inner, expander)
    if node.type == "unary_expression" and inner:
        return _unary(node, inner, expander)
    if node.type == "command":
        return _command(node, expander)
    if node.type in ("string", "word", "simple_expansion", "expansion", "concatenation", "raw_string"):
        return _given(expander.text(node), bool)
    return UNKNOWN


def _binary(node: Node, inner: Sequence[Node], expander: Expander) -> Truth:
    sign = node.child_by_field_name("operator")
    operator = "" if sign is None else text_of(sign)
    if operator in ("&&", "||", "-a", "-o"):
        left, right = _truth(inner[0], expander), _truth(inner[-1], expander)
        return both(left, right, every=operator in ("&&", "-a"))
    return compared(expander.text(inner[0]), operator, expander.text(inner[-1]))


def both(left: Truth, right: Truth, *, every: bool) -> Truth:
    """Both of two (or either)."""
    if left.said is (not every):
        return left
    if right.said is (not every):
        return right
    if left.said is None or right.said is None:
        return UNKNOWN
    return Truth(every, left.sure and right.sure, left.default or right.default)


def compared(left: str, operator: str, right: str) -> Truth:
    """Two words beside an operator of ``[``."""
    method = _NUMBERS.get(operator)
    if operator in ("=", "=="):
        return _given(left, lambda text: fnmatchcase(text, without(right)), right)
    if operator == "!=":
        return _given(left, lambda text: not fnmatchcase(text, without(right)), right)
    if method is not None:
        numbers = [without(one) or "0" for one in (left, right)]
        if all(re.fullmatch(r"-?\d{1,18}", one, re.ASCII) for one in numbers):
            return _given(left, lambda text: bool(getattr(int(numbers[0]), method)(int(numbers[1]))), right)
    return UNKNOWN


def _given(left: str, said: Callable[[str], bool], right: str = "") -> Truth:
    """A variable that the script does not set is taken as empty; a command's output is not known."""
    open_parts = unknowns(left) + unknowns(right)
    if any(one.startswith(("$(", "`", "<", "{")) for one in open_parts):
        return UNKNOWN
    return Truth(said(without(left)), not open_parts)


def _unary(node: Node, inner: Sequence[Node], expander: Expander) -> Truth:
    sign = node.child_by_field_name("operator") or node.children[0]
    operator, last = text_of(sign), inner[-1]
    if operator == "!":
        return _truth(last, expander).negated()
    return asked(operator, expander.text(last))


def asked(operator: str, word: str) -> Truth:
    """``-n WORD``, ``-z WORD``; what stands on a disk is not known."""
    if operator == "-n":
        return _given(word, bool)
    if operator == "-z":
        return _given(word, lambda text: not text)
    if operator == "-v":
        return Truth(False, False)
    return UNKNOWN


def _command(node: Node, expander: Expander) -> Truth:
    words = [one for child in named(node) for one in expander.fields(child)]
    if words in (["true"], [":"]):
        return Truth(True)
    if words == ["false"]:
        return Truth(False)
    if words[:1] not in (["test"], ["["]):
        return UNKNOWN
    given = [one for one in words[1:] if one != "]"]
    if given[:1] == ["!"]:
        return _tested(given[1:]).negated()
    return _tested(given)


def _tested(given: Sequence[str]) -> Truth:
    if len(given) == 3:
        return compared(given[0], given[1], given[2])
    if len(given) == 2:
        return asked(given[0], given[1])
    return _given(given[0], bool) if len(given) == 1 else UNKNOWN
