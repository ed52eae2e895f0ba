"""Programs that start an engine by themselves: ``-e ollama``, ``ollama run``, ``lms load``.

Such a program has no cache of its own. What it hands to the engine where its user says nothing is in its
part, in the engine's folder, loaded when it is asked for; `kvplan.engines.door_settings` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module

from kvplan.engines.base import Choice
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import record
from kvplan.results import SizeResult
from kvplan.settings import Settings

_PARTS = {"ollama": "llamacpp.programs.ollama", "lmstudio": "llamacpp.programs.lmstudio"}
DOORS = tuple(_PARTS)
"""Their names, as ``--engine`` takes them."""


class Wish(NamedTuple):
    """Options that a user gave to the program; None: not given.

    context: tokens of one request. gpu_layers: as the engine counts them; gpu_part: a part of them all.
    spread: over all GPUs, though one would do. overhead: bytes of each GPU that it is told to leave alone.
    """

    context: int | None = None
    parallel: int | None = None
    cache_type: str | None = None
    flash_attn: bool | None = None
    gpu_layers: int | None = None
    gpu_part: Fraction | None = None
    batch: int | None = None
    spread: bool = False
    overhead: int = 0


class Begun(NamedTuple):
    """How the program starts the engine.

    context: of one request; usual: what it is where nobody says. options: the engine's own, without the
    context's. gpus: how many it takes of those that are there. notes: what its user has to know.
    """

    context: int
    usual: int
    parallel: int
    options: Mapping[str, object]
    gpus: int
    notes: tuple[str, ...] = ()


Ends = tuple[int, int, int]
"""Low, likely, high."""


class Loaded(NamedTuple):
    """Bytes of a loaded model, as the program tells them: of the GPUs, and of host memory."""

    gpu: Ends
    host: Ends = (0, 0, 0)


class Stored(NamedTuple):
    """A model's file: its bytes and those of its tensors, parameters (None: not known), the model's
    own context and width."""

    bytes: Ends | None
    weights: Ends | None
    parameters: Ends | None
    context: int | None
    width: int


@record()
class Door:
    """A program and the engine behind it."""

    name: str
    title: str
    engine: str
    versions: tuple[str, ...]
    """its releases whose source was read, oldest first; none where it is not public"""
    build: Callable[[Model], str]
    """the file that it takes of a model that is named and no file"""
    begin: Callable[[Model, Settings, Wish], Begun]
    """how it starts the engine on the GPUs of the settings"""
    context_word: str
    """context_word, parallel_word: what sets them"""
    parallel_word: str
    parallel: int
    """requests at once where nobody says"""
    always: tuple[str, ...] = ()
    """what every answer says"""
    head: str = ""
    """what its own names of models begin with here"""
    command: Callable[[str, Mapping[str, object]], tuple[str, ...]] | None = None
    """the lines that start it with an engine's flags, by the name that it has of a model"""
    loaded: Callable[[Model, SizeResult], Loaded | None] | None = None
    """what its list of loaded models says of one; None where it is not known"""
    stored: Callable[[Model], Stored] | None = None
    """what it says of a model's file"""
    in_build: Callable[[Model, str], Model] | None = None
    """the model in a build as it names one"""


@cache
def door_of(name: str) -> Door:
    """The door of that name, one of `DOORS`."""
    found: Door = import_module(f"kvplan.engines.{_PARTS[name]}").DOOR
    return found


def head_of(choice: Choice | None) -> str:
    """The prefix of the names that a choice's program gives to models; empty where it has none."""
    return "" if choice is None or choice.door is None else door_of(choice.door).head
