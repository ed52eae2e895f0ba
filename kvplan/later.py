"""Modules and regular expressions that are made when they are first used.

Modules are read as ``lazy import`` of newer Pythons does it. The imports stand once more under
``TYPE_CHECKING``, where type checkers and the import contracts see them:

    if TYPE_CHECKING:
        from kvplan.engines.vllm import latent, rocm
    else:
        latent, rocm = later("kvplan.engines.vllm", "latent rocm")
"""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["later", "regex"]


class _Later:
    """Stands for a module. Names are looked up in it each time, as they are in a module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)


def later(package: str, names: str) -> Any:
    """Stand-ins for modules of a package, named with blanks between them; a single one is returned alone."""
    found = tuple(_Later(f"{package}.{name}") for name in names.split())
    return found if len(found) > 1 else found[0]


if TYPE_CHECKING:
    from re import compile as regex
else:

    class _Regex:
        """Stands for a compiled expression: to compile one takes as long as to read a module, and most are
        never asked. Its methods are the expression's own from the first use on."""

        def __init__(self, *given) -> None:
            self._given = given

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            found = re.compile(*self._given)
            for method in ("match", "fullmatch", "search", "sub", "findall", "finditer", "split", "pattern"):
                setattr(self, method, getattr(found, method))
            return getattr(found, name)

    def regex(pattern, flags=0):
        """``re.compile`` on first use."""
        return _Regex(pattern, flags)
