"""No rule computes with a value it has not checked: any key that is read may hold anything at all."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kvplan.architectures.config.activation_shape import activation_shape
from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.rotary import rotary_table_bytes
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from scripts.config_subset import Tree, Watched
from tests.laws.sampling import some
from tests.recorded import config_names, config_of

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 0.5, 10**30, float("nan"), float("inf"), "", "full_attention"),
    *([], ["mamba"], [None, -1], {}, {"type": [1]}),
)
"""What a key may hold instead: each JSON type, out of every range."""
SAMPLE = 1
"""Values a config's key is tried with in a run of the whole suite; ``make laws`` tries all."""


def read_all(raw: Mapping[str, Any]) -> None:
    """All that is read of a config: layers, tensors, widths, tables of angles."""
    with suppress(KvplanError):
        inventory_of(raw)
    with suppress(KvplanError):
        rotary_table_bytes(raw, 2)
    with suppress(KvplanError):
        activation_shape(raw, read_config(raw, id="hostile", source="test"), 2)


def paths(seen: Tree) -> Iterator[tuple[str, ...]]:
    """Each key that was read, those of objects below it included."""
    for key, below in seen.items():
        yield (key,)
        yield from ((key, *rest) for rest in paths(below))


def changed(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The config with one key's value replaced."""
    made = copy.deepcopy(raw)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


def hostile(name: str) -> Iterator[tuple[tuple[str, ...], Any, dict[str, Any]]]:
    """Every key a config is read by × what it may hold instead (a sample of it outside ``make laws``)."""
    raw, _ = config_of(name)
    seen: Tree = {}
    read_all(Watched(raw, seen))
    whole, random = os.environ.get("KVPLAN_LAWS") == "all", Random(name)
    for path in paths(seen):
        for value in HOSTILE if whole else random.sample(HOSTILE, SAMPLE):
            yield path, value, changed(raw, path, value)


def fault(raw: Mapping[str, Any]) -> str | None:
    """What reading it raised that is not an answer to the user."""
    try:
        read_all(raw)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.laws
@pytest.mark.parametrize("name", some(config_names(), 3, by=lambda name: name.split("__")[0]))
def test_any_key_may_hold_anything(name: str) -> None:
    found = [(".".join(path), value, fault(raw)) for path, value, raw in hostile(name)]
    assert [entry for entry in found if entry[2]] == []
