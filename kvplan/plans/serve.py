"""Which flags each engine has in a plan's ``serve:``, and the flags that some settings come to.

The names are those of the servers' own arguments with underscores (``flags`` in an engine's folder).
"""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from kvplan.engines import OPTIONS_OF, choose_engine
from kvplan.engines.flags import COMMON, WITHOUT_FOLDER, HostTier
from kvplan.engines.folders import having, part_of
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.plans.flags import EngineFlags, Flag
from kvplan.record import field_names
from kvplan.settings import LONGEST, Settings

if TYPE_CHECKING:
    from kvplan.plans.plan import Plan

_KIND_OF = {
    **dict.fromkeys(("gpu_memory_utilization", "cpu_offload_gb"), "number"),
    **dict.fromkeys(("max_num_batched_tokens", "block_size"), "length"),
    "max_model_len": "longest",
    "kv_cache_memory": "size",
    "speculative": "speculative",
}
_OWN_KINDS = {"count": "count", "flag": "switch", "word": "word", "share": "number", "ratio": "number",
              "counts": "list", "shares": "list", "ratios": "list", "words": "list",
              "map": "map", "retention": "word", "size": "size"}  # fmt: skip
_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel",
    "kv_dtype": "kv_cache_dtype",
    "q": "quantization",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "speculative": "speculative_config",
}
NO_VERSION = "no version of"
"""How the note begins that a plan leaves the release open."""
_KEPT = "host port served_model_name trust_remote_code revision chat_template tool_call_parser".split()


def host_tiers() -> dict[str, HostTier]:
    """Engines that have a cache tier in host memory."""
    parts = having("flags").items()
    return {name: part.HOST_TIER for name, part in parts if hasattr(part, "HOST_TIER")}


@cache
def flags_of(spec: str) -> EngineFlags:
    """The flags of ``vllm`` or ``vllm@0.32``; the newest known release where none is named.

    Raises KvplanError(unknown-engine | bad-version).
    """
    choice = choose_engine(spec)
    name = choice.engine.name
    own = part_of(name, "flags")
    named = WITHOUT_FOLDER if own is None else own.NAMES
    flags = {flag: Flag(flag, _kind(setting), setting) for flag, setting in named.items()}
    for option in OPTIONS_OF.get(name, ()):
        if not (option.served or option.planned):
            continue
        flags[option.name] = Flag(option.name, _OWN_KINDS[option.kind], option.name, option.parse)
    for word in (*_KEPT, *getattr(own, "KEPT", ())):
        flags.setdefault(word, Flag(word, "kept", None))
    short = {**_SHORT, **getattr(own, "SHORT", {})}
    return EngineFlags(
        name,
        f"{name}@{choice.asked or choice.version}",
        flags,
        {word: long for word, long in short.items() if long in flags and word not in flags},
        None if choice.asked else f"{NO_VERSION} {name} is named: the rules of {choice.version} were taken",
        traits_of(name).spread,
        traits_of(name).foreign,
    )


def _kind(setting: str) -> str:
    if setting in _KIND_OF:
        return _KIND_OF[setting]
    if setting == "quantization":
        return "word"
    default = _DEFAULTS[setting]
    if isinstance(default, bool) or setting in ("enable_prefix_caching", "async_scheduling"):
        return "switch"
    if isinstance(default, str) or setting == "attention_backend":
        return "word"
    return "count"


_DEFAULTS = {name: getattr(Settings(), name) for name in field_names(Settings)}


@cache
def flag_for(engine: str, setting: str) -> str | None:
    """The engine's flag for a setting or an own option; None where it has none."""
    found = (flag.name for flag in flags_of(engine).flags.values() if flag.setting == setting)
    return next(found, None)


def serve_of(settings: Settings, engine: str) -> tuple[tuple[str, object], ...]:
    """The flags, in the engine's order, whose values differ from the defaults of Settings.

    A planner that writes every resolved value sets it in the settings first. engine: ``vllm`` or
    ``vllm@0.32``. Raises KvplanError(unknown-engine).
    """
    found: dict[str, tuple[str, object]] = {}
    for flag in flags_of(engine).flags.values():
        if flag.setting is None or flag.setting in found:
            continue
        if flag.own is not None:
            value = settings.own.get(flag.setting)
        elif flag.setting == "speculative":
            value = _speculation(settings)
        else:
            value = getattr(settings, flag.setting)
            value = None if value == _DEFAULTS[flag.setting] else value
        if value is not None and flag.setting != flags_of(engine).spread:
            found[flag.setting] = (flag.name, written(value))
    return tuple(found.values())


def unsaid(settings: Settings, engine: str) -> tuple[str, ...]:
    """Settings that are not the default and that no flag of the engine says."""
    flags = flags_of(engine)
    said = {flag.setting for flag in flags.flags.values()} | {flags.spread}
    said |= {option.name for option in OPTIONS_OF.get(flags.engine, ()) if not option.served}
    plain = [name for name in COMMON if name not in said and getattr(settings, name) != _DEFAULTS[name]]
    own = [name for name, value in settings.own.items() if value is not None and name not in said]
    draft = ["speculative_method"] if settings.num_speculative_tokens and "speculative" not in said else []
    return (*plain, *own, *draft)


def remarks(plan: Plan) -> tuple[str, ...]:
    """What a reader must know of a plan that was read from a command or manifest: options without a rule, and
    what was read in one of several ways."""
    return (*left_out(plan), *(note for note in plan.notes if not note.startswith(NO_VERSION)))


def left_out(plan: Plan | None) -> tuple[str, ...]:
    """What of a command or manifest is in no figure."""
    return () if plan is None or not plan.unread else (f"not counted: {', '.join(plan.unread)}",)


def written(value: object) -> object:
    """A setting's value as a plan writes it."""
    if value == LONGEST and not isinstance(value, bool):
        return "auto"
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, tuple):
        return tuple(written(one) for one in value)
    return value


def draft_word(model: Model) -> str:
    """A draft as a plan names it: a card by its id, another source by where it was read."""
    return model.id if model.source.startswith("card:") else model.source


def _speculation(settings: Settings) -> str | None:
    if settings.speculative_method is None:
        return None
    entry: dict[str, object] = {
        "method": settings.speculative_method,
        "num_speculative_tokens": settings.num_speculative_tokens,
    }
    if settings.speculative_model is not None:
        entry["model"] = draft_word(settings.speculative_model)
    return json.dumps(entry, sort_keys=True)
