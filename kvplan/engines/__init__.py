"""The serving engines: one file each, chosen by ``name`` or ``name@version``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module

from kvplan.engines.base import Choice, Engine, parse_version
from kvplan.engines.doors import DOORS, door_of
from kvplan.engines.folders import having, title_of
from kvplan.engines.options import RETENTION, EngineOption
from kvplan.engines.shared_options import check_shared
from kvplan.engines.traits import traits_of, usual_on
from kvplan.errors import KvplanError, did_you_mean
from kvplan.gpu import Gpu
from kvplan.model import Model, is_gguf_build
from kvplan.record import replace
from kvplan.settings import Settings, with_setting


class _Engines(Mapping[str, Engine]):
    """The engines by name, each loaded when it is first asked for."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes
        self._loaded: dict[str, Engine] = {}

    def __getitem__(self, name: str) -> Engine:
        if name not in self._loaded:
            module, kind = self._classes[name].split(":")
            self._loaded[name] = getattr(import_module(f"kvplan.engines.{module}"), kind)()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes


ENGINES: Mapping[str, Engine] = _Engines(
    {
        "generic": "generic:Generic",
        "transformers": "transformers.engine:Transformers",
        "vllm": "vllm.engine:Vllm",
        "sglang": "sglang.engine:Sglang",
        "trtllm": "trtllm.engine:TrtLlm",
        "llamacpp": "llamacpp.engine:LlamaCpp",
        "tgi": "tgi.engine:Tgi",
        "mlx": "mlx.engine:Mlx",
    }
)


DEFAULT_ENGINE, GGUF_ENGINE, MLX_ENGINE = "vllm", "llamacpp", "mlx"
OPTIONS_OF: dict[str, tuple[EngineOption, ...]] = {
    "generic": (RETENTION,),
    **{name: part.OPTIONS for name, part in having("options").items()},
}
"""Engine → the options that it alone has."""
OWN_OPTIONS: dict[str, EngineOption] = {
    option.name: option for options in OPTIONS_OF.values() for option in options
}
"""Every option that only some engines know, by name; engines that share one declare it alike."""


def knows(engine: Engine, name: str) -> bool:
    """Whether the engine has this option of its own."""
    return any(option.name == name for option in engine.options)


def own_settings(engine: Engine, settings: Settings) -> Settings:
    """The settings with only those engine options that the engine knows, and with the GPUs that were named
    (``2xrtx-3090``) dealt as the engine deals them."""
    foreign = [name for name in settings.own if not knows(engine, name)]
    if foreign:
        settings = replace(settings, own=settings.own.without(*foreign))
    dealt = traits_of(engine.name).spread if settings.spread else None
    if dealt is not None:
        # Where its own size was said, the other GPUs are other servers', and so are other machines.
        stated, gpu = getattr(settings, dealt), settings.gpu
        alone = stated > 1 or (gpu is not None and gpu.is_a_machine)
        number = stated if alone else settings.tensor_parallel_size
        settings = with_setting(replace(settings, tensor_parallel_size=1, spread=False), dealt, number)
    return settings


def default_engine(
    models: Iterable[Model], quantization: str | None = None, gpus: Iterable[Gpu | None] = ()
) -> str:
    """The engine whose rules count where none is named: llama.cpp where a model is a GGUF file, or the name
    of one, and where weights are asked for as a build of such files; on Macs what people run there, and MLX
    for builds that it alone loads."""
    models = tuple(models)
    named = any(model.is_gguf or model.gguf_mixture for model in models)
    if named or (quantization is not None and is_gguf_build(quantization)):
        return GGUF_ENGINE
    usual = {None if gpu is None else usual_on(gpu) for gpu in gpus}
    found = (usual.pop() if len(usual) == 1 else None) or DEFAULT_ENGINE
    builds = found == GGUF_ENGINE and models and all(model.quantization == MLX_ENGINE for model in models)
    return MLX_ENGINE if builds else found


@cache
def owners_of(name: str) -> tuple[str, ...]:
    """The engines that have a setting, or an option of their own, of that name."""
    if name in OWN_OPTIONS:
        return tuple(engine for engine, own in OPTIONS_OF.items() if any(one.name == name for one in own))
    return tuple(engine for engine in OPTIONS_OF if name not in traits_of(engine).foreign)


def check_options(engines: Iterable[Engine], settings: Settings) -> None:
    """Every setting must be one that an asked engine has. Raises KvplanError(unknown-option)."""
    asked = tuple(engines)
    check_shared([engine.name for engine in asked], settings)
    for name in settings.own:
        if not any(knows(engine, name) for engine in asked):
            why = (traits_of(engine.name).foreign.get(name) for engine in asked)
            raise KvplanError(
                "unknown-option",
                f"{' and '.join(engine.name for engine in asked)}: no option {name}",
                detail=tuple(dict.fromkeys(reason for reason in why if reason)),
                help=tuple(f"it belongs to --engine {owner}" for owner in owners_of(name)),
            )


def _letters(word: str) -> str:
    return "".join(sign for sign in word.lower() if sign.isalnum())


_NAMES = {_letters(word): name for name in (*ENGINES, *DOORS) for word in (title_of(name), name)}
"""Engines and programs by their names and titles, without what is no letter: llama.cpp, TensorRT-LLM."""


def engine_named(word: str) -> str | None:
    """The engine of that name, or behind the program of it; None where there is none."""
    name = _NAMES.get(_letters(word))
    return door_of(name).engine if name in DOORS else name


def choose_engine(spec: str) -> Choice:
    """``vllm``, ``vllm@0.32`` or ``vllm@0.32.1`` → the engine and the version whose rules apply.

    Without a version the newest known release; an unknown newer one gets the newest rules and a
    warning; one older than the oldest known is refused. Raises KvplanError(unknown-engine | bad-version).
    """
    word, _, asked = spec.partition("@")
    name = _NAMES.get(_letters(word))
    if name is None:
        near = did_you_mean(word, (*ENGINES, *DOORS))
        raise KvplanError(
            "unknown-engine",
            f"unknown engine {word!r}",
            help=f"did you mean {near!r}?" if near else "known: " + ", ".join((*ENGINES, *DOORS)),
        )
    if name in DOORS:
        return _behind(name, asked)
    engine = ENGINES[name]
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
    within = [known for known in engine.versions if parse_version(known)[: len(version)] == version]
    if within and len(parse_version(within[-1])) > len(version):
        several = f"{engine.name} {asked} is several releases: the rules of {within[-1]} were applied"
        return Choice(engine, within[-1], several, asked)
    known = [
        known for known in engine.versions if parse_version(known) <= version[: len(parse_version(known))]
    ]
    nearest = known[-1] if known else engine.versions[0]
    same_release = parse_version(nearest) == version[: len(parse_version(nearest))]
    if same_release:
        return Choice(engine, nearest, asked=asked)
    newer = version > parse_version(newest)
    what = "newer than the newest known release" if newer else "between known releases"
    warning = f"{engine.name} {asked} is {what}: the rules of {nearest} were applied"
    return Choice(engine, nearest, warning, asked)


def _behind(name: str, asked: str) -> Choice:
    """The engine that a program starts, in its newest release. Raises KvplanError(bad-version)."""
    door = door_of(name)
    engine = ENGINES[door.engine]
    version = parse_version(asked) if asked else ()
    if version and door.versions and version < parse_version(door.versions[0])[: len(version)]:
        raise KvplanError(
            "bad-version",
            f"{door.title} before {door.versions[0]} has its own engine, whose rules are not read",
            help=f"use {name}@{door.versions[0]} or newer",
        )
    said = f" {asked or door.versions[-1]}" if door.versions else ""
    warning = f"{door.title}{said} runs llama.cpp: its rules, {engine.name} {engine.versions[-1]}"
    return Choice(engine, engine.versions[-1], warning, door=name)
