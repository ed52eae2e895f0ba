"""From a plan's settings to an engine's own arguments, by one table for each engine.

A setting that differs from what the engine does by itself must become an argument; where the engine has
none, that is an error with the reason: nothing is dropped silently."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvplan.engines import OWN_OPTIONS
from kvplan.engines.command import Argument, Asked, EngineTable, word_of
from kvplan.errors import KvplanError
from kvplan.plans.plan import Plan
from kvplan.record import Json, field_names, record, replace
from kvplan.settings import NO_FLAG, Settings

_DEFAULTS = Settings()


@record()
class Arguments:
    """The command that starts one engine. words: after the start. env: environment variables. options: the
    options file's tree, where the engine has one."""

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    options: Json | None = None


def arguments_of(plan: Plan, settings: Settings, table: EngineTable, version: str) -> Arguments:
    """Every setting that is not the engine's own choice, then the kept flags, in the table's order.

    Raises KvplanError(no-such-argument | bad-argument).
    """
    made = _Made(table, version, settings)
    values = _values(settings)
    for name in table.required:
        if name not in values:
            raise KvplanError(
                "missing-argument",
                f"{table.engine} without {name} takes what fits, which no plan says",
                help=f"write {name} under serve:",
            )
    for name, argument in table.settings.items():
        if name in values:
            made.add(name, argument, values.pop(name))
    if table.build is not None:
        values.pop("quantization", None)  # the name of the file says it
    for name in values:
        raise _none(table, name, version)
    for flag, value in plan.serve:
        name = flag.lstrip("-").replace("-", "_")
        if name in table.kept:
            made.add(name, table.kept[name], value)
        elif not (_is_setting(table, name) or (name in OWN_OPTIONS and not OWN_OPTIONS[name].served)):
            raise KvplanError(
                "no-such-argument",
                f"{table.engine} has no argument for `{flag}` that kvplan knows",
                help="take it out of serve: and add it to the command by hand",
            )
    return made.done()


def kept(plan: Plan, name: str) -> object | None:
    """A kept flag's value as the plan has it."""
    return dict(plan.serve).get(name)


def _values(settings: Settings) -> dict[str, object]:
    """Setting or own option → value, those that are not the engine's own choice."""
    found = {
        name: getattr(settings, name)
        for name in field_names(Settings)
        if name not in NO_FLAG and getattr(settings, name) != getattr(_DEFAULTS, name)
    }
    own = {name: value for name, value in settings.own.items() if value is not None}
    return {**found, **{name: value for name, value in own.items() if OWN_OPTIONS[name].served}}


def _is_setting(table: EngineTable, name: str) -> bool:
    """Whether the flag stands for a setting, whose value is in the settings already."""
    flags = {
        argument.flag.rpartition(".")[2].lstrip("-").replace("-", "_") for argument in table.settings.values()
    }
    return name in flags or name in table.settings or name in table.names or name in table.none


def _none(table: EngineTable, name: str, version: str) -> KvplanError:
    why = table.none.get(name, "it has no such setting")
    return KvplanError(
        "no-such-argument",
        f"{table.engine} {version} has no argument for {name}: {why}",
        help="leave it out of the plan, or start the engine by hand",
    )


class _Made:
    """The arguments as they gather."""

    def __init__(self, table: EngineTable, version: str, settings: Settings) -> None:
        self.table, self.asked = table, Asked(settings, version)
        self.words: list[str] = []
        self.env: list[tuple[str, str]] = []
        self.options: dict[str, Any] = {}

    def add(self, name: str, argument: Argument, value: Any) -> None:
        if argument.words is not None:
            value = self.translated(name, argument.words, value)
        if argument.env is not None and argument.in_environment:
            if value is not None:
                self.env.append((argument.env, word_of(value)))
            return
        if not self.asked.since(argument.since) and argument.before is not None:
            argument = replace(argument, flag=argument.before)
        elif not self.asked.since(argument.since):
            if argument.env is None:
                raise KvplanError(
                    "no-such-argument",
                    f"{self.table.engine} {self.asked.version} has no {argument.flag} for {name}",
                    help=f"use {self.table.engine}@{argument.since} or newer",
                )
            self.env.append((argument.env, word_of(value)))
            return
        if argument.write is not None:
            value = argument.write(value, self.asked)
        if argument.in_file:
            self.put(argument.flag, value)
        else:
            self.words += _written(argument, value)

    def translated(self, name: str, words: Mapping[str, object], value: object) -> object:
        if str(value) not in words:
            known = ", ".join(words)
            raise KvplanError(
                "bad-argument", f"{self.table.engine} takes no {name} {value!r}", help=f"one of {known}"
            )
        return words[str(value)]

    def put(self, path: str, value: object) -> None:
        *parents, last = path.split(".")
        tree = self.options
        for key in parents:
            tree = tree.setdefault(key, {})
        tree[last] = _plain(value)

    def done(self) -> Arguments:
        return Arguments(tuple(self.words), tuple(self.env), self.options)


def _written(argument: Argument, value: object) -> list[str]:
    """The words of one argument. A switch has no value; an empty tuple says nothing."""
    if isinstance(value, bool):
        if value:
            return [argument.flag]
        return [argument.off] if argument.off else []
    if isinstance(value, tuple):
        return [argument.flag, *(word_of(one) for one in value)] if value else []
    return [argument.flag, word_of(value)]


def _plain(value: object) -> object:
    """As YAML and JSON have it."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
