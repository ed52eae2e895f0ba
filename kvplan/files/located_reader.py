"""Typed access to the values of a located YAML file; every complaint shows the line."""

from __future__ import annotations

from typing import Any

from kvplan.architectures.config.view import LARGEST
from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.yaml.marks import Key, Located, Path


class LocatedReader:
    """Takes a file apart key by key. ``code``: of errors about values; unknown keys have ``unknown-key``,
    absent ones ``missing-key``."""

    def __init__(self, located: Located, what: str, code: str) -> None:
        self.located = located
        self.data = located.mapping(what)
        self.code = code

    def word(self, path: Path, known: Any) -> str:
        text = self.text(path, required=True) or ""
        if text not in known:
            near = did_you_mean(text, known)
            hint = f": did you mean {near}?" if near else ""
            raise self.wrong(path, f"this must be one of {', '.join(known)}{hint}")
        return text

    def number(
        self, path: Path, *, lowest: int = 1, highest: int = LARGEST, required: bool = False
    ) -> int | None:
        value: int | None = self.typed(path, int, "a whole number", default=... if required else None)
        if value is not None and not lowest <= value <= highest:
            raise self.wrong(path, f"this must lie in {lowest:,} … {highest:,}")
        return value

    def text(self, path: Path, *, required: bool = False) -> str | None:
        value: str | None = self.typed(path, str, "text", default=None)
        if required and not value:
            raise self.missing(str(path[-1]), path[:-1])
        return value

    def texts(self, path: Path) -> tuple[str, ...]:
        values = self.typed(path, list, "a list", default=[])
        return tuple(self.typed((*path, index), str, "text") for index in range(len(values)))

    def mapping(self, path: Path, *, required: bool = False) -> dict[Key, Any]:
        value: dict[Key, Any] | None = self.typed(path, dict, "`key: value` lines", default=None)
        if not value and required:
            raise self.missing(str(path[-1]), path[:-1])
        return value or {}

    def typed(self, path: Path, kind: Any, shape: str, *, default: Any = ..., any_bool: bool = False) -> Any:
        value: Any = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int):
                value = value[part]
            else:
                value = None
        if value is None and default is not ...:
            return default
        if value is None and self.located.node(path) is None:
            raise self.missing(str(path[-1]), path[:-1])
        # bool is an int to Python, never to a reader of the file.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and not any_bool):
            raise self.wrong(path, f"this must be {shape}")
        return value

    def only(self, entry: dict[Key, Any], known: Any, path: Path) -> None:
        for key in entry:
            if key not in known:
                from kvplan.files.yaml.validation import unknown_key

                raise unknown_key(self.located, (*path, key), set(known) - set(map(str, entry)))

    def missing(self, key: str, path: Path) -> KvplanError:
        name = ".".join(map(str, (*path, key)))
        return self.located.error("missing-key", f"the key `{name}` is missing", path, help=f"add `{key}:`")

    def wrong(self, path: Path, message: str) -> KvplanError:
        name = ".".join(map(str, path))
        text = self.located.text(path)
        helps = [f'put it in quotes: "{text}"'] if text and message.startswith("this must be text") else []
        return self.located.error(self.code, f"`{name}`: {message}", path, help=helps)
