"""An engine's own scheduler and block manager on a workload, in virtual time: pure, whole numbers."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from kvplan.simulate.clock import Clock, StepTime
from kvplan.simulate.names import Arrival
from kvplan.simulate.replica import Trace, simulate
from kvplan.simulate.results import Answer
from kvplan.simulate.settings import Engine, Group


class _Callable(ModuleType):
    """The library's function and this room have one name: ``kvplan.simulate(…)`` works whichever of them was
    loaded last (`kvplan.__getattr__` finds the function, an import of the room puts the room there)."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return import_module("kvplan.api.simulating").simulate(*arguments, **keywords)


sys.modules[__name__].__class__ = _Callable

__all__ = ["Answer", "Arrival", "Clock", "Engine", "Group", "StepTime", "Trace", "simulate"]
