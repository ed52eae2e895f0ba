"""Which flags each engine has in a plan's ``serve:``, and the flags that some settings come to.

The names are those of the servers' own arguments with underscores (``flags`` in an engine's folder).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from kvplan.engines import OPTIONS_OF, choose_engine
from kvplan.engines.folders import COMMON, WITHOUT_FOLDER, HostTier, having, part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.model import Model
from kvplan.record import field, field_names, record
from kvplan.settings import LONGEST, Settings, known_method
from kvplan.units import parse_bytes

if TYPE_CHECKING:
    from kvplan.plans.plan import Plan

_KIND_OF = {
    **dict.fromkeys(("gpu_memory_utilization", "cpu_offload_gb"), "number"),
    **dict.fromkeys(("max_num_batched_tokens", "block_size"), "length"),
    "max_model_len": "longest",
    "kv_cache_memory": "size",
    "speculative": "speculative",
}
_THREE_STATES = ("enable_prefix_caching", "async_scheduling", "disable_hybrid_kv_cache_manager")
"""Switches of which None is the engine's own choice."""
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
    if isinstance(default, bool) or setting in _THREE_STATES:
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
    """Notes on a plan that was read from a command or manifest: options without a rule, and words with
    several readings."""
    return (*left_out(plan), *(note for note in plan.notes if not note.startswith(NO_VERSION)))


def left_out(plan: Plan | None) -> tuple[str, ...]:
    """Parts of a command or manifest that are in no figure, and those of them that may move the pool."""
    if plan is None or not plan.unread:
        return ()
    from kvplan.engines.open_flags import reasons
    from kvplan.masking import masked  # of words alone: the name may be one, and its value the next

    return (
        f"not counted: {masked(', '.join(plan.unread))}",
        *reasons(plan.engine.partition("@")[0], plan.unread),
    )


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


KINDS = {
    "count": "a whole number",
    "length": "a whole number of tokens",
    "longest": "a whole number of tokens, or auto",
    "size": "bytes, or a text with a unit such as 16GiB",
    "number": "a number such as 0.9",
    "switch": "true or false",
    "word": "a word",
    "list": "a list of numbers",
    "map": "a mapping such as {image: 2, video: 0}",
    "speculative": "{method: mtp, num_speculative_tokens: 1}, or with model: in place of method",
    "kept": "a word, a number, true or false",
}
"""Kind of a flag → what a right value is."""
_METHOD, _MODEL, _TOKENS = "method", "model", "num_speculative_tokens"


@record()
class Flag:
    """One flag. name: the engine's own, with underscores. setting: the field of Settings or the engine's own
    option that it sets; None: it changes no memory and is only kept. own: what checks an own option's value.
    """

    name: str
    kind: str
    setting: str | None
    own: Callable[[object], object] | None = None


@record()
class EngineFlags:
    """The flags of an engine. spec: ``name@version`` with the version written out. note: what was filled in.

    short: other spellings, which are refused with the long name. spread: the setting that takes all GPUs
    of a replica by itself, where the engine has no flag for it. foreign: other engines' flags → why not here.
    """

    engine: str
    spec: str
    flags: Mapping[str, Flag]
    short: Mapping[str, str]
    note: str | None = None
    spread: str | None = None
    foreign: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> Flag:
        """The flag of that name. Raises KvplanError(short-flag | unknown-flag)."""
        found = self.flags.get(name)
        if found is not None:
            return found
        plain = name.lstrip("-").replace("-", "_")
        if plain in self.flags:
            raise KvplanError("unknown-flag", f"`{name}` is not how a plan writes it", help=f"write {plain}")
        if plain in self.short:
            raise KvplanError("short-flag", f"`{name}` is a short form", help=f"write {self.short[plain]}")
        if plain in self.foreign:
            raise KvplanError("unknown-flag", f"{self.engine} has no `{name}`", help=self.foreign[plain])
        near = did_you_mean(plain, self.flags)
        known = ", ".join(sorted(self.flags))
        raise KvplanError(
            "unknown-flag",
            f"{self.engine} has no flag `{name}` that kvplan knows",
            help=f"did you mean {near}?" if near else f"flags of {self.engine}: {known}",
        )


def parse_flag(flag: Flag, value: Any) -> Any:
    """The value of ``flag`` as Settings takes it; (method, tokens, model's name) for speculation.

    Raises KvplanError(bad-flag).
    """
    try:
        parsed = _PARSERS[flag.kind](value)
        return parsed if flag.own is None else flag.own(parsed)
    except (ValueError, TypeError):
        raise KvplanError("bad-flag", f"`{flag.name}` is {KINDS[flag.kind]}, not {shown(value)}") from None


def shown(value: Any) -> str:
    """A value of a YAML file in a message."""
    text = json.dumps(value) if isinstance(value, (bool, dict, list)) or value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def kept(value: Any) -> object:
    """A flag's value as the plan keeps it: what was written; mappings as JSON, lists as tuples."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return tuple(value) if isinstance(value, list) else value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _longest(value: Any) -> int:
    return LONGEST if value in ("auto", LONGEST) and not isinstance(value, bool) else _count(value)


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return parse_bytes(str(value))


def _number(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise TypeError
    return Fraction(str(value))


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value.strip()


def _list(value: Any) -> tuple[Any, ...]:
    pieces = value.split(",") if isinstance(value, str) else value
    if not isinstance(pieces, (list, tuple)) or any(
        isinstance(piece, (bool, dict, list)) for piece in pieces
    ):
        raise TypeError
    return tuple(pieces)


def _map(value: Any) -> Any:
    if not isinstance(value, (dict, str)):
        raise TypeError
    return value


def _speculative(value: Any) -> tuple[str | None, int, str | None]:
    entry = json.loads(value) if isinstance(value, str) else value
    if not isinstance(entry, dict) or not set(entry) <= {_METHOD, _MODEL, _TOKENS} or len(entry) < 2:
        raise TypeError
    tokens = _count(entry.get(_TOKENS))
    if tokens < 1:
        raise ValueError
    method, model = entry.get(_METHOD), entry.get(_MODEL)
    return (
        None if method is None else known_method(_word(method)),
        tokens,
        None if model is None else _word(model),
    )


def _kept(value: Any) -> object:
    if isinstance(value, (dict, list)):
        raise TypeError
    return value


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "count": _count,
    "length": _count,
    "longest": _longest,
    "size": _size,
    "number": _number,
    "switch": _switch,
    "word": _word,
    "list": _list,
    "map": _map,
    "speculative": _speculative,
    "kept": _kept,
}
