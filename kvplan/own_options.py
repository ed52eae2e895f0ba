"""Options by name, as they were given: those that one engine alone has, and all with which one is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.record import Json, KeptHash, record


@record()
class OwnOptions(KeptHash, Json):
    """A frozen mapping, so that settings that have it can be the key of a cache; values are hashable.

    An engine reads it through the record of its own options, which knows types and defaults
    (`kvplan.engines.options.EngineOptions`); rooms that know no engine read it by name.
    """

    pairs: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, object]) -> OwnOptions:
        """Options in the order of their names: the same ones are equal."""
        return cls(tuple(sorted(given.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.pairs)[name]

    def get(self, name: str, default: Any = None) -> Any:
        for known, value in self.pairs:
            if known == name:
                return value
        return default

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __or__(self, more: Mapping[str, object]) -> OwnOptions:
        return self.of({**self, **more}) if more else self

    def without(self, *names: str) -> OwnOptions:
        return OwnOptions(tuple(pair for pair in self.pairs if pair[0] not in names))


NO_OPTIONS = OwnOptions()
