"""The keys of a config that decide sizes: found by watching what the rules read, not by a list.

A card carries these keys only. The rules for weights, activations and rotary tables are run on a config
that remembers which of its keys were asked for; what nobody asked for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kvplan.errors import KvplanError

Tree = dict[str, Any]
_NOISE = frozenset(
    "_name_or_path _commit_hash transformers_version auto_map initializer_range use_cache id2label label2id"
    " return_dict output_attentions output_hidden_states bos_token_id eos_token_id pad_token_id".split()
)
"""Left out even where a whole object was read."""


class Watched(Mapping[str, Any]):
    """A config that notes which keys are read, in ``seen`` (key → the same of an object below it)."""

    def __init__(self, raw: Mapping[str, Any], seen: Tree) -> None:
        self._raw = raw
        self._seen = seen

    def _note(self, key: str) -> Tree:
        below: Tree = self._seen.setdefault(key, {})
        return below

    def __getitem__(self, key: str) -> Any:
        value = self._raw[key]
        below = self._note(key)
        return Watched(value, below) if isinstance(value, Mapping) else value

    def __contains__(self, key: object) -> bool:
        if key in self._raw:
            self._note(str(key))
            return True
        return False

    def __iter__(self) -> Iterator[str]:
        for key in self._raw:
            if key not in _NOISE:
                yield key

    def __len__(self) -> int:
        return len(self._raw)


def size_relevant(raw: Mapping[str, Any], readers: tuple[Callable[[Mapping[str, Any]], object], ...]) -> Tree:
    """What of a config the readers ask for, in the config's order. A reader that refuses still has read."""
    seen: Tree = {}
    for reader in readers:
        with suppress(KvplanError):
            reader(Watched(raw, seen))
    return _kept(raw, seen)


def _kept(raw: Mapping[str, Any], seen: Tree) -> Tree:
    """Of an object that was only looked for, one key: that it is there, and not empty, was the answer."""
    if not seen:
        return {key: value for key, value in list(raw.items())[:1] if not isinstance(value, Mapping)} or {
            key: {} for key in list(raw)[:1]
        }
    return {
        key: _kept(value, seen[key]) if isinstance(value, Mapping) else value
        for key, value in raw.items()
        if key in seen
    }
