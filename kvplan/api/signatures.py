"""Signatures as people see them: a function that takes the options of `kvplan.size` shows each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

SIGNED = {
    "size": "SizeOptions", "explain": "SizeOptions", "compare": "SizeOptions", "plan": "PlanOptions",
    "sizes": "PlanOptions",
    "simulate": "SimulateOptions",
}  # fmt: skip
"""Functions of the library that take such options, and which."""


def sign(name: str, function: Callable[..., object]) -> None:
    """Give a function of that name the signature that ``help`` and notebooks complete from."""
    from kvplan.api import keywords

    if hasattr(function, "__signature__"):
        return
    own = inspect.signature(function)
    shown = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    named = {one.name for one in shown}
    options: dict[str, str] = getattr(keywords, SIGNED[name]).__annotations__
    for option, kind in options.items():
        if option not in named:
            annotation = getattr(kind, "__forward_arg__", kind)
            shown.append(
                inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )
    # Type checkers read Unpack[...]; help() and notebooks read this alone. Without it each of three functions
    # would have some 30 parameters more, and a line that gathers them.
    function.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
