"""What the shell offers for a half-typed word. Nothing is offered where the data cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def _models() -> Iterable[str]:
    from kvplan.files.cards.find import list_names

    return list_names()


def _gpus() -> Iterable[str]:
    from kvplan.files.gpus.find import list_keys

    return list_keys()


def _engines() -> Iterable[str]:
    from kvplan.engines import ENGINES

    return (*ENGINES, "all")


def _dtypes() -> Iterable[str]:
    from kvplan.dtypes import KV_DTYPES

    return ("auto", "fp8", *KV_DTYPES)


def _families() -> Iterable[str]:
    from kvplan.families import FAMILIES

    return FAMILIES


def _schemas() -> Iterable[str]:
    from kvplan.cli.schema import names

    return names()


def _formats() -> Iterable[str]:
    from kvplan.report.check import REPORTERS

    return REPORTERS


def _objectives() -> Iterable[str]:
    from kvplan.planning.ask import OBJECTIVES

    return OBJECTIVES


def _targets() -> Iterable[str]:
    from kvplan.report.export import TARGETS

    return TARGETS


def _trace_formats() -> Iterable[str]:
    from kvplan.files.traces.formats import FORMATS

    return FORMATS


def _routers() -> Iterable[str]:
    from kvplan.simulation.fleet import ROUTERS

    return ROUTERS


def _evictions() -> Iterable[str]:
    from kvplan.simulate.evict import KNOWN

    return KNOWN


def _executors() -> Iterable[str]:
    return ("auto", "serial", "processes", "dask", "ray")


_SOURCES: dict[str, Callable[[], Iterable[str]]] = {
    "models": _models,
    "gpus": _gpus,
    "engines": _engines,
    "dtypes": _dtypes,
    "families": _families,
    "schemas": _schemas,
    "formats": _formats,
    "targets": _targets,
    "objectives": _objectives,
    "trace_formats": _trace_formats,
    "routers": _routers,
    "executors": _executors,
    "evictions": _evictions,
}


def completer(name: str) -> Callable[[str], list[str]]:
    """A function of the half-typed word for typer's ``autocompletion``."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        try:
            names = sorted(_SOURCES[name]())
        except Exception:
            return []
        return [done + comma + word for word in names if word.casefold().startswith(last.casefold())]

    return complete
