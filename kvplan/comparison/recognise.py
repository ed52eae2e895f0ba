"""From what an engine printed, and what the user adds, to the settings that its rules are asked with."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvplan.engines import ENGINES, choose_engine
from kvplan.engines.base import Choice, parse_version
from kvplan.engines.observed import Observation, Setting, SettingValue, placed
from kvplan.engines.observed.reading import reading_of
from kvplan.engines.options import EngineOption
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import Json, JsonDict, fields, record, replace
from kvplan.settings import Settings

GIVEN = "given"
MOST_RANKS = 4096
_COUNTS = frozenset(
    "tensor_parallel_size pipeline_parallel_size data_parallel_size decode_context_parallel_size block_size "
    "max_model_len max_num_seqs max_num_batched_tokens num_gpu_blocks_override num_speculative_tokens".split()
)
_WORDS = frozenset(
    "dtype kv_cache_dtype mamba_cache_dtype mamba_ssm_cache_dtype speculative_method attention_backend "
    "quantization".split()
)
_FLAGS = frozenset(
    "enable_prefix_caching disable_hybrid_kv_cache_manager enforce_eager enable_expert_parallel "
    "async_scheduling".split()
)
_SHARES = frozenset(("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"))
# Settings that a list of non-default arguments leaves out only where they have their default.
_DEFAULTED = frozenset(
    "kv_cache_dtype tensor_parallel_size pipeline_parallel_size decode_context_parallel_size "
    "disable_hybrid_kv_cache_manager speculative_method num_speculative_tokens".split()
)
_SETTINGS = frozenset(item.name for item in fields(Settings))
_SWITCHES = {"true": True, "false": False, "enabled": True, "disabled": False, "auto": True, "1": True}
_SWITCHES["full-size"] = True  # llama.cpp's word for --swa-full

Named = dict[str, Any]


@record()
class Recognised:
    """choice: the engine's rules; settings: without any memory; shown: name → value and where it was found.

    stated: names that the log or the user settled; a hypothesis about others contradicts nobody.
    """

    choice: Choice
    settings: Settings
    stated: frozenset[str]
    shown: Mapping[str, str]
    notes: tuple[str, ...]


def recognise(
    observation: Observation,
    overrides: Json,
    *,
    engine: str | None = None,
    gpu: Gpu | None = None,
    gpu_words: str | None = None,
    draft: Model | None = None,
) -> Recognised:
    """The rules and settings behind an observation; overrides (parsed values by name) win.

    gpu: the one that the log tells, where the user names none; gpu_words: how it tells. draft: the model of
    the draft that it names.
    Raises KvplanError(unknown-engine | bad-version | bad-setting).
    """
    choice, told, notes = choose(observation, engine)
    options = {option.name: option for option in getattr(choice.engine, "options", ())}
    reading = reading_of(observation.engine)
    values, own, shown = _printed(observation, options)
    notes += _without_half_a_draft(values, shown)
    refused = None if observation.refusal is None else observation.refusal.max_num_seqs
    if refused is not None:
        values["max_num_seqs"] = refused.value
        shown["max_num_seqs"] = f"{refused.value} ({placed(refused, observation.source)})"
    for name, value, seen in reading.told(observation, values):
        if value is not None and name in _SETTINGS:
            values[name] = value
        elif value is not None and name in options:
            own[name] = options[name].parse(value)
        if seen is not None:
            shown[name] = seen
    if gpu is not None:
        values["gpu"] = gpu
        shown["gpu"] = gpu_words or f"{gpu.slug} (its memory)"
    if draft is not None and values.get("num_speculative_tokens"):
        values["speculative_model"] = draft
        shown["speculative_model"] = f"{draft.id} (its name)"
    given = dict(overrides)
    own.update(given.pop("own", {}))
    values.update(given)
    shown.update({name: f"{_as_given(value)} ({GIVEN})" for name, value in given.items()})
    values["own"] = OwnOptions.of(own)
    stated = set(shown) | ({"version"} if told else set())
    if any(setting.source == "args" for setting in observation.settings.values()):
        stated |= _DEFAULTED
    return Recognised(choice, Settings(**values), frozenset(stated), shown, tuple(notes))


def _printed(
    observation: Observation, options: Mapping[str, EngineOption]
) -> tuple[Named, Named, dict[str, str]]:
    """(settings, options of the engine's own, where each was found) that the log prints."""
    values: Named = {}
    own: Named = {}
    shown: dict[str, str] = {}
    reading = reading_of(observation.engine)
    unchosen = reading.unchosen(observation)
    for printed, setting in observation.settings.items():
        name = reading.names.get(printed, printed)
        if name in unchosen:
            continue
        value, kept = None, values
        if name in _SETTINGS:
            value, kept = _typed(name, setting.value), values
        elif name in options:
            value, kept = _own(options[name], setting.value), own
        if value is not None:
            kept[name], shown[name] = value, _as_printed(value, setting, observation.source)
    for name, value in reading.own_options(observation).items():
        if name in options:
            own[name], shown[name] = options[name].parse(value), f"{value} ({observation.source})"
    return values, own, shown


def _as_printed(value: object, setting: Setting, source: str) -> str:
    """The value with the place where it was read."""
    line = f", line {setting.line}" if setting.line else ""
    return f"{_as_given(value)} ({setting.source or source}{line})"


def _without_half_a_draft(values: JsonDict, shown: dict[str, str]) -> list[str]:
    """Takes out a speculative method without its tokens, or the reverse; what is to be said of it."""
    method, tokens = values.get("speculative_method"), values.get("num_speculative_tokens")
    if method and tokens:
        return []
    for name in ("speculative_method", "num_speculative_tokens"):
        values.pop(name, None)
        shown.pop(name, None)
    if not tokens:
        return []
    return ["speculative decoding without a method in the log: give --speculative METHOD:TOKENS"]


def _as_given(value: object) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else str(getattr(value, "slug", value))


def choose(observation: Observation, asked: str | None) -> tuple[Choice, bool, list[str]]:
    """The engine's rules; whether the version is known for sure; what to tell about the choice.

    asked: ``vllm@0.19``, or a name alone (then the log's version counts).
    """
    if asked is not None and "@" in asked:
        choice = choose_engine(asked)
        _check_engine(choice, observation)
        return choice, True, [choice.warning] if choice.warning else []
    if asked is not None:
        _check_engine(choose_engine(asked), observation)
    name, version = observation.engine, observation.engine_version
    newest = choose_engine(name)
    if observation.generation == "V0":
        # V0's pool is that of the oldest rules here: every layer keeps all tokens, blocks of 16.
        oldest = Choice(newest.engine, newest.engine.versions[0])
        return oldest, True, [f"vLLM's V0 engine: the rules of {oldest.version} without groups were applied"]
    reading = reading_of(name)
    build = reading.build(observation)
    if build is not None:
        like, memory = choose_engine(f"{name}@{build.rules}"), choose_engine(f"{name}@{build.memory}")
        text = f"{name} {version[:40] + ' ' if version is not None else ''}{build.text}"
        return replace(like, asked=memory.asked), False, [f"{text}; those rules were applied"]
    if version is None:
        return newest, False, [f"the version is not said: the rules of {name} {newest.version} were applied"]
    release, first = _release(version), _release(newest.engine.versions[0])
    if first is None or reading.build_numbers:
        return newest, True, []
    if release is None or release <= reading.no_release:
        text = f"{name} {version[:40]}: the release is not known; the rules of {newest.version} were applied"
        return newest, False, [text]
    if release < first:
        oldest = Choice(newest.engine, newest.engine.versions[0])
        text = (
            f"{name} {version[:40]} is older than what is known: the rules of {oldest.version} were applied"
        )
        return oldest, False, [text]
    choice = choose_engine(f"{name}@{version}")
    return choice, True, [choice.warning] if choice.warning else []


def _release(version: str) -> tuple[int, ...] | None:
    """(0, 19) out of ``0.19.0``; None where it is no version."""
    try:
        return parse_version(version)[:2]
    except KvplanError:
        return None


def _check_engine(choice: Choice, observation: Observation) -> None:
    if choice.engine.name != observation.engine:
        raise KvplanError(
            "other-engine",
            f"the {observation.source} is of {observation.engine}, not of {choice.engine.name}",
            help=f"--engine {observation.engine}" if observation.engine in ENGINES else (),
        )


def _typed(name: str, value: SettingValue) -> int | str | bool | Fraction | None:
    """The value where it has the setting's type; None where it says nothing."""
    if name in _COUNTS:
        most = MOST_RANKS if name.endswith("_parallel_size") else 10**15
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        return None
    if name in _WORDS:
        return value if isinstance(value, str) and value and len(value) <= 60 else None
    if name in _SHARES:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return Fraction(value) if isinstance(value, Fraction) or whole else None  # type: ignore[arg-type]
    if name in _FLAGS:
        return value if isinstance(value, bool) else None
    return None


def _own(option: Any, value: SettingValue) -> Any:
    """An engine's own option; None where the printed value is not one of its values."""
    if option.kind == "flag" and isinstance(value, str):
        value = _SWITCHES.get(value.strip().lower())
    if value is None:
        return None
    try:
        return option.parse(value)
    except KvplanError:
        return None


def without(recognised: Recognised, *names: str) -> Recognised:
    """The same without settings that the rules do not take."""
    defaults = Settings()
    changes = {name: getattr(defaults, name) for name in names}
    shown = {name: value for name, value in recognised.shown.items() if name not in names}
    notes = tuple(f"{name} of the log is not known here and was left out" for name in names)
    return replace(
        recognised,
        settings=replace(recognised.settings, **changes),
        shown=shown,
        stated=recognised.stated - set(names),
        notes=(*recognised.notes, *notes),
    )
