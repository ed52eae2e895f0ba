"""Shell completion for a half-typed word. Nothing is offered where the data cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

_SOURCES = {
    "models": "kvplan.files.cards.find:list_names",
    "gpus": "kvplan.files.gpus.listed:list_keys",
    "engines": "kvplan.engines:ENGINES",
    "dtypes": "kvplan.dtypes:KV_DTYPES",
    "families": "kvplan.families:FAMILIES",
    "schemas": "kvplan.cli.schema:names",
    "formats": "kvplan.report.check:REPORTERS",
    "targets": "kvplan.report.export:TARGETS",
    "objectives": "kvplan.planning.ask:OBJECTIVES",
    "trace_formats": "kvplan.files.traces.formats:FORMATS",
    "routers": "kvplan.simulation.fleet.run:ROUTERS",
    "evictions": "kvplan.simulation.cache_only.evict:KNOWN",
}
"""Where the words of an option stand: names, or a function that lists them."""
_MORE = {
    "engines": ("all",),
    "dtypes": ("auto", "fp8"),
    "executors": ("auto", "serial", "processes", "dask", "ray"),
}


def _words(name: str) -> Iterable[str]:
    if name not in _SOURCES:
        return _MORE[name]
    module, _, where = _SOURCES[name].partition(":")
    found = getattr(import_module(module), where)
    return (*(found() if callable(found) else found), *_MORE.get(name, ()))


def completer(name: str) -> Callable[[str], list[str]]:
    """A function of the half-typed word for typer's ``autocompletion``."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        try:
            names = sorted(_words(name))
        except Exception:
            return []
        return [done + comma + word for word in names if word.casefold().startswith(last.casefold())]

    return complete
