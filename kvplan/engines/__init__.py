"""The serving engines: one file each, chosen by ``name`` or ``name@version``."""

from __future__ import annotations

from kvplan.engines.base import Choice, Engine, parse_version
from kvplan.engines.generic import Generic
from kvplan.engines.transformers import Transformers
from kvplan.engines.vllm import Vllm
from kvplan.errors import KvplanError, did_you_mean

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Generic(), Transformers(), Vllm())}
DEFAULT_ENGINE = "vllm"


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
