"""Parts shared by most rules: the number of layers, their kinds, and the parts of each kind.

A kind is a word of ``layer_types`` as transformers spells it after loading (``full_attention``,
``sliding_attention``, ``linear_attention`` …). Where a config gives ``layer_types``, that list counts; a
type's pattern says what the library derives where it does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.errors import KvplanError
from kvplan.families import NoCache, Part
from kvplan.model import Layer
from kvplan.record import record

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"

HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"

Parts = tuple[Part, ...]

PartsOf = Callable[[ConfigView], Parts]

Pattern = Callable[[ConfigView, int], list[str]]

# transformers configuration_utils.py, remap_legacy_layer_types: words of older checkpoints.
_OLD_WORDS = {
    "mamba": LINEAR,
    "attention": FULL,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}


def layers_of(
    view: ConfigView,
    kinds: list[str],
    parts: Mapping[str, PartsOf],
    shared: Mapping[int, Parts] | None = None,
    overrides: Callable[[ConfigView, list[str]], Mapping[int, Mapping[str, object]]] | None = None,
) -> list[Layer]:
    """One layer for each kind; equal settings are compiled once. Raises KvplanError(unknown-layer-type)."""
    settings: Mapping[int, Mapping[str, object]] | None = layer_settings(view, len(kinds))
    if settings is None:
        settings = overrides(view, kinds) if overrides else {}
    made: dict[tuple[str, str], Layer] = {}
    layers = []
    for index, kind in enumerate(kinds):
        if shared and index in shared:
            layers.append(Layer(shared[index]))
            continue
        if kind not in parts:
            at = ", ".join(str(i) for i, other in enumerate(kinds) if other == kind)
            where = at if len(at) < 60 else at[:57] + "…"
            raise view.refuse("layer_types", f"unknown layer type {kind[:60]!r} (layers {where})")
        own = settings.get(index)
        key = (kind, json.dumps(own, sort_keys=True, default=str) if own else "")
        if key not in made:
            made[key] = Layer(parts[kind](view.with_values(own) if own else view))
        layers.append(made[key])
    return layers


def given_kinds(view: ConfigView, count: int, *keys: str) -> list[str] | None:
    """The config's own list in today's words, or None. Raises KvplanError for a list of another length."""
    for key in keys:
        given = view.sequence(key) if view.given(key) else None
        if given is None:
            continue
        if len(given) != count:
            raise view.refuse(key, f"{len(given)} entries for {count} layers")
        return [known_word(view, key, word) for word in given]
    return None


@record()
class Recipe:
    """The rule of a model type, put together from a pattern and the parts of each kind of layer."""

    parts: Mapping[str, PartsOf]
    pattern: Pattern
    """the kinds where the config gives no list"""
    keys: tuple[str, ...] = ("layer_types",)
    """where a list may stand"""
    count: Callable[[ConfigView], int] = ConfigView.num_layers
    """how many layers"""
    adjust: Callable[[ConfigView, list[str]], list[str]] | None = None
    """what the library changes even in a given list"""
    sharing: Callable[[ConfigView, list[str]], Mapping[int, Parts]] | None = None
    """layers (by index) whose parts are replaced because they read another layer's cache"""
    overrides: Callable[[ConfigView, list[str]], Mapping[int, Mapping[str, object]]] | None = None

    def kinds(self, view: ConfigView) -> list[str]:
        """The kind of every layer, as listed or by the pattern."""
        kinds = given_kinds(view, self.count(view), *self.keys) or self.pattern(view, self.count(view))
        return self.adjust(view, kinds) if self.adjust else kinds

    def __call__(self, view: ConfigView) -> list[Layer]:
        kinds = self.kinds(view)
        shared = self.sharing(view, kinds) if self.sharing else {}
        return layers_of(view, kinds, self.parts, shared, self.overrides)


def known_word(view: ConfigView, key: str, word: object) -> str:
    """A kind in today's spelling. Raises KvplanError for anything but a text."""
    if not isinstance(word, str):
        raise view.refuse(key, f"{str(word)[:40]!r} is not the name of a layer type")
    return _OLD_WORDS.get(word, word)


def layer_settings(view: ConfigView, count: int) -> dict[int, Mapping[str, object]] | None:
    """``per_layer_config``: what single layers have otherwise (transformers integrations/heterogeneity)."""
    given = view.mapping("per_layer_config")
    if given is None:
        return None
    settings: dict[int, Mapping[str, object]] = {}
    for key, values in given.items():
        origin = f"{view.path}per_layer_config"
        if not str(key).isdecimal() or not isinstance(values, Mapping):
            raise KvplanError("bad-config", f"{origin} is not a table of layer numbers and settings")
        index = check_integer(int(key) if len(str(key)) < 9 else 10**9, origin, 0, count - 1)
        if values.get("skip"):
            raise view.refuse(f"per_layer_config.{key}.skip", "layers with parts left out are not known")
        settings[index] = values
    return settings


def type_names(text: str) -> frozenset[str]:
    """Model types written as words of one text."""
    return frozenset(text.split())


def nothing(view: ConfigView) -> Parts:
    """A layer that stores nothing."""
    return (NoCache(),)


def every(period: int, usual: str, special: str) -> Pattern:
    """Layers period-1, 2*period-1 … are special, the others usual."""
    return by_index(lambda index, count: usual if (index + 1) % period else special)


def every_key(key: str, default: int, usual: str, special: str) -> Pattern:
    """As ``every``, with the period from the config."""

    def pattern(view: ConfigView, count: int) -> list[str]:
        period = int(view.optional_integer(key, default=default) or default)
        return every(period, usual, special)(view, count)

    return pattern


def all_of(kind: str) -> Pattern:
    """Every layer is of one kind."""
    return lambda view, count: [kind] * count


def by_index(kind_of: Callable[[int, int], str]) -> Pattern:
    """kind_of(index, number of layers) for each layer."""
    return lambda view, count: [kind_of(index, count) for index in range(count)]


def last_is_full(view: ConfigView, kinds: list[str]) -> list[str]:
    """The library forces the last layer to full attention (gemma4 and kin)."""
    return [*kinds[:-1], FULL] if kinds else kinds


def index_list(view: ConfigView, key: str, *, lowest: int = 0) -> list[int] | None:
    """A list of layer numbers, or None."""
    given = view.sequence(key)
    if given is None:
        return None
    return [check_integer(value, f"{view.path}{key}", lowest) for value in given]


def rope_layers(view: ConfigView, count: int) -> list[bool]:
    """1 = the layer has rotary positions; without a list, all but every no_rope_layer_interval-th."""
    given = index_list(view, "no_rope_layers")
    if not given:
        interval = view.optional_integer("no_rope_layer_interval", default=4) or 4
        return [bool((index + 1) % interval) for index in range(count)]
    if len(given) != count:
        raise view.refuse("no_rope_layers", f"{len(given)} entries for {count} layers")
    return [bool(value) for value in given]
