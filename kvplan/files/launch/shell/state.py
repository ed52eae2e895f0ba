"""The state of a script: its variables, arguments, functions and the files that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvplan.named import NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

Words = tuple[str, ...]
MOST_OTHERS = 12
"""Other values of one variable that are kept."""


class Variable(NamedTuple):
    """A variable. words: one, or those of an array; None where only a branch sets it. others: its words where
    a condition is otherwise, by the condition's text."""

    words: Words | None
    array: bool = False
    default: bool = False
    """it is what the script takes where nobody says another"""
    others: Mapping[str, Words | None] = {}
    keys: Words | None = None
    """of an associative array, in the order of its words"""


class State:
    """Changed by each command that is read."""

    def __init__(self, environment: Mapping[str, str], script: str = "script") -> None:
        self.variables = {name: Variable((text,)) for name, text in environment.items()}
        self.exported = set(environment)
        self.all_exported = False
        self.script = script
        self.arguments: Words | None = None  # of a script: whoever starts it says them
        self.functions: dict[str, Node] = {}
        self.files: dict[str, str] = {}
        self.missing: list[str] = []
        self.ended = False
        self.hidden: dict[str, Variable | None] = {}  # of the function that is read

    def copy(self) -> State:
        """As a branch, or a process of its own, begins."""
        other = State({}, self.script)
        other.__dict__.update(self.__dict__)
        other.variables, other.exported = dict(self.variables), set(self.exported)
        other.functions, other.files = dict(self.functions), self.files
        return other

    def process(self) -> State:
        """As a command begins that is a script: it is given what is exported."""
        other = self.copy()
        other.variables = {name: one for name, one in self.variables.items() if name in self.exported}
        other.functions = {}
        return other

    def environment(self, world: str | None = None) -> dict[str, str]:
        """The variables that a command is given."""
        found = {}
        for name in self.exported & self.variables.keys():
            words = self.words(name, world)
            if words:
                found[name] = words[0]
        return found

    def words(self, name: str, world: str | None = None) -> Words | None:
        """The words of a variable, where a condition is otherwise too."""
        variable = self.variables.get(name)
        if variable is None:
            return None
        return variable.words if world is None else variable.others.get(world, variable.words)

    def told(self, world: str) -> str:
        """A condition with the variables that are otherwise where it is."""
        said = [
            f"{name}={' '.join(words)}"
            for name, variable in self.variables.items()
            if not variable.array and world in variable.others
            and (words := variable.others[world]) is not None and words != variable.words
        ]  # fmt: skip
        return f"{world} ({', '.join(said[:3])})" if said else world

    def put(self, name: str, variable: Variable) -> None:
        self.variables[name] = variable
        if self.all_exported:
            self.exported.add(name)

    def hide(self, name: str) -> None:
        """A name becomes a function's own."""
        self.hidden.setdefault(name, self.variables.get(name))

    def show(self) -> None:
        """The function ends."""
        for name, variable in self.hidden.items():
            self.variables.pop(name, None)
            if variable is not None:
                self.variables[name] = variable

    def join(self, arms: Sequence[tuple[str, State]], default: State) -> None:
        """Goes on as the default arm of a branch ended, and remembers what other arms set."""
        self.__dict__.update(default.__dict__)
        self.variables = dict(default.variables)
        for label, arm in arms:
            self.exported = self.exported | arm.exported
            for name in arm.variables.keys() | default.variables.keys():
                mine, other = self.variables.get(name), arm.variables.get(name)
                before = default.variables.get(name)
                if other == before:
                    continue
                words = None if other is None else other.words
                if mine is None or (mine.words != words and len(mine.others) < MOST_OTHERS):
                    kept = mine or Variable(None, other is not None and other.array)
                    self.variables[name] = kept._replace(others={**kept.others, label: words})
