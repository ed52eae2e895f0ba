"""The serving engines: one file each, chosen by ``name`` or ``name@version``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvplan.engines.base import Choice, Engine, parse_version
from kvplan.engines.generic import Generic
from kvplan.engines.llamacpp import LlamaCpp
from kvplan.engines.options import EngineOption
from kvplan.engines.sglang import Sglang
from kvplan.engines.transformers import Transformers
from kvplan.engines.trtllm import TrtLlm
from kvplan.engines.vllm import Vllm
from kvplan.errors import KvplanError, did_you_mean
from kvplan.settings import Settings

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (Generic(), Transformers(), Vllm(), Sglang(), TrtLlm(), LlamaCpp())
}
DEFAULT_ENGINE = "vllm"
OWN_OPTIONS: dict[str, EngineOption] = {
    option.name: option for engine in ENGINES.values() for option in engine.options
}
"""Every option that only some engines know, by name; engines that share one declare it alike."""


def knows(engine: Engine, name: str) -> bool:
    """Whether the engine has this option of its own."""
    return any(option.name == name for option in engine.options)


def own_settings(engine: Engine, settings: Settings) -> Settings:
    """The settings with only those engine options that the engine knows."""
    kept = tuple(pair for pair in settings.engine_options if knows(engine, pair[0]))
    return settings if kept == settings.engine_options else replace(settings, engine_options=kept)


def check_options(engines: Iterable[Engine], settings: Settings) -> None:
    """Every engine option must be known to one of the engines. Raises KvplanError(unknown-option)."""
    asked = tuple(engines)
    for name, _ in settings.engine_options:
        if not any(knows(engine, name) for engine in asked):
            owners = [engine.name for engine in ENGINES.values() if knows(engine, name)]
            raise KvplanError(
                "unknown-option",
                f"{' and '.join(engine.name for engine in asked)}: no option {name}",
                help=tuple(f"it belongs to --engine {owner}" for owner in owners),
            )


def choose_engine(spec: str) -> Choice:
    """``vllm``, ``vllm@0.32`` or ``vllm@0.32.1`` → the engine and the version whose rules apply.

    Without a version the newest known release; an unknown newer one gets the newest rules and a
    warning; one older than the oldest known is refused. Raises KvplanError(unknown-engine | bad-version).
    """
    name, _, asked = spec.partition("@")
    engine = ENGINES.get(name.lower())
    if engine is None:
        near = did_you_mean(name, ENGINES)
        raise KvplanError(
            "unknown-engine",
            f"unknown engine {name!r}",
            help=f"did you mean {near!r}?" if near else "known: " + ", ".join(ENGINES),
        )
    newest = engine.versions[-1]
    if not asked:
        return Choice(engine, newest)
    version = parse_version(asked)
    if version < parse_version(engine.versions[0])[: len(version)]:
        raise KvplanError(
            "bad-version",
            f"the rules of {engine.name} before {engine.versions[0]} are not known",
            help=f"use {engine.name}@{engine.versions[0]} or newer",
        )
    known = [
        known for known in engine.versions if parse_version(known) <= version[: len(parse_version(known))]
    ]
    nearest = known[-1] if known else engine.versions[0]
    same_release = parse_version(nearest) == version[: len(parse_version(nearest))]
    if same_release:
        return Choice(engine, nearest)
    newer = version > parse_version(newest)
    what = "newer than the newest known release" if newer else "between known releases"
    return Choice(engine, nearest, f"{engine.name} {asked} is {what}: the rules of {nearest} were applied")
