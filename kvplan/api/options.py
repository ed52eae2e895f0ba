"""Keywords as `kvplan.settings.Settings`: texts are parsed, short names are written out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from kvplan.api.arguments import check_type
from kvplan.api.load import MODEL, gpus_of, load_draft
from kvplan.engines import OPTIONS_OF, OWN_OPTIONS
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.own_options import OwnOptions
from kvplan.record import field_names, replace
from kvplan.settings import LONGEST, MEDIA, Settings, known_method
from kvplan.units import parse_bytes, parse_tokens

_SHARE = (Fraction, int, float, str)
SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "batch_size": "requests",
    "context": "tokens",
    "kv_dtype": "kv_cache_dtype",
}
LENGTHS = ("tokens", "encoder_tokens", "answer_tokens", "max_num_batched_tokens")
SIZES = ("kv_cache_memory", "weights")
NUMBERS = ("gpu_memory_utilization", "cpu_offload_gb")
_NUMBER = regex(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", re.ASCII)


def parse_length(value: int | str) -> int:
    """max_model_len: a length, or ``auto`` (-1, as vLLM writes it) for the longest that fits."""
    if value == LONGEST or (isinstance(value, str) and value.strip().lower() in ("auto", "-1")):
        return LONGEST
    return parse_tokens(value)


def parse_number(name: str, value: Any) -> Fraction:
    """0.9, "0.9" or a Fraction, exactly as written. Raises KvplanError(bad-setting)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction)):
        raise KvplanError("bad-setting", f"{name} is {value!r}, not a number")
    text = str(value).strip()
    if isinstance(value, Fraction):
        return value
    if not _NUMBER.fullmatch(text):
        raise KvplanError("bad-setting", f"{name} is {text!r}, not a number", help="write, for example, 0.9")
    return Fraction(text)


Parser = Callable[[Any], Any]
_READERS: dict[str, Parser] = {"speculative_model": load_draft, "speculative_method": known_method}
_PARSERS: dict[str, Parser] = {
    **dict.fromkeys(LENGTHS, parse_tokens),
    **dict.fromkeys(SIZES, parse_bytes),
    "max_model_len": parse_length,
    **{name: partial(parse_number, name) for name in NUMBERS},
}


def _kinds(name: str, annotation: str) -> tuple[type, ...]:
    """The types that an option is taken in, by the annotation of the setting."""
    if name in _PARSERS:
        return _SHARE if "Fraction" in annotation else (int, str)
    if name in ("gpu", "speculative_model"):
        return (Gpu, str) if name == "gpu" else MODEL
    words = annotation.replace("|", " ").replace("[", " ").split()
    return tuple(kind for kind in (str, bool, int, tuple) if kind.__name__ in words)


_KINDS = {name: _kinds(name, str(entry.type)) for name, entry in Settings.__dataclass_fields__.items()}


def make_settings(**options: Any) -> Settings:
    """Settings from keywords, with texts parsed. Raises KvplanError(unknown-option) with the nearest name."""
    if not options:
        return _DEFAULTS
    if options.get("speculative_config") is not None:
        options = _with_drafts(options)
    values: dict[str, Any] = {}
    own: dict[str, object] = {}
    count = 1
    for name, value in options.items():
        name = SHORT.get(name, name)
        if name == "speculative_config" and value is None:
            continue
        if name in _COMPUTED or (name not in OPTION_NAMES and name not in OWN_OPTIONS):
            raise _unknown_option(name)
        if value is None:
            continue
        if name in OWN_OPTIONS:
            own[name] = OWN_OPTIONS[name].parse(value)
            continue
        check_type(name, value, _KINDS[name], "bad-setting")
        if name == "gpu":
            values[name], count = gpus_of(value)
            continue
        if name in _PARSERS:
            value = _PARSERS[name](value)
        values[name] = _READERS[name](value) if name in _READERS else value
        if name == "speculative_model" and options.get("speculative_method") is None:
            from kvplan.architectures.config.drafts import method_of

            values["speculative_method"] = method_of(values[name])
    if values.get("gpu") is not None:
        values["gpus"] = count if count > 1 else None
    if count > 1:
        _spread_over(count, values, own)
    if own:
        values["own"] = OwnOptions.of(own)
    return Settings(**values)


def in_our_words(options: Mapping[str, Any], engines: Iterable[str]) -> dict[str, Any]:
    """Keywords, with those in ``settings``, by our names where an engine calls them otherwise (SGLang's
    ``context_length``), and without what changes no memory (``port``).

    Raises KvplanError(unknown-option | bad-usage).
    """
    more = options.get("settings") or {}
    check_type("settings", more, (Mapping,))
    given = {name: value for name, value in options.items() if name != "settings"}
    if not more and _PLAIN.issuperset(given):
        return given
    from kvplan.plans.words import changes_no_memory, elsewhere, setting_of

    named, found = tuple(engines), dict[str, Any]()
    for name, value in (*more.items(), *given.items()):
        ours = str(name) if name in _PLAIN else setting_of(str(name), named, _KNOWN)
        if ours is None and changes_no_memory(str(name), named):
            continue
        if ours is None:
            error = elsewhere(str(name), _KNOWN, str, lambda engine: f'engine="{engine}"')
            raise _unknown_option(str(name)) if error is None else error
        ours = "speculative_config" if ours == "speculative" else ours
        if ours in found:
            raise KvplanError("bad-usage", f"{name} says {ours} again")
        found[ours] = value
    return found


def _with_drafts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with vLLM's ``speculative_config`` taken apart. Raises KvplanError(bad-setting)."""
    from kvplan.engines.shared_options import speculative

    given = options["speculative_config"]
    check_type("speculative_config", given, (str, Mapping), "bad-setting")
    method, tokens, model = speculative(given)
    named = {"speculative_method": method, "num_speculative_tokens": tokens, "speculative_model": model}
    twice = [name for name in named if options.get(name) is not None]
    if twice:
        raise KvplanError("bad-usage", f"speculative_config says it already: leave out {', '.join(twice)}")
    rest = {name: value for name, value in options.items() if name != "speculative_config"}
    return {**rest, **{name: value for name, value in named.items() if value is not None}}


def changed_settings(base: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings with those that were given in their place, as `make_settings` reads them."""
    if options.get("speculative_config") is not None:
        options = _with_drafts(options)
    asked = make_settings(**options)
    given = {SHORT.get(name, name) for name, value in options.items() if value is not None}
    changes = {name: getattr(asked, name) for name in given if name not in OWN_OPTIONS}
    return replace(base, own=base.own | asked.own, **changes)


def _spread_over(count: int, values: dict[str, Any], own: Mapping[str, object]) -> None:
    """``h100x8`` without --tp: tensor parallelism over what pipeline, data and prefill-context parallelism
    leave."""
    beside = own.get("prefill_context_parallel_size")
    others = int(values.get("pipeline_parallel_size", 1)) * (beside if isinstance(beside, int) else 1)
    # SGLang's attention groups lie inside tensor parallelism and take no GPUs of their own.
    inside = own.get("enable_dp_attention") is True
    others *= 1 if inside else int(values.get("data_parallel_size", 1))
    tensor = values.get("tensor_parallel_size")
    if tensor is None and others and count % others == 0:
        values["tensor_parallel_size"] = count // others
        values["spread"] = True
    elif (tensor or 1) * others > count:
        needed = (tensor or 1) * others
        raise KvplanError(
            "bad-setting",
            f"the parallel sizes take {needed} GPUs, and --gpu names {count}",
            help=f"leave --tp out, or name as many GPUs: --gpu {needed}x{values['gpu'].slug}",
        )


_DEFAULTS = Settings()
OPTION_NAMES = [name for name in field_names(Settings) if name not in ("gpus", "spread", "starts")]
_COMPUTED = ("own", "media")
"""Settings that follow from other keywords."""
_KNOWN = frozenset({*OPTION_NAMES, *OWN_OPTIONS, "speculative"} - set(_COMPUTED))
_PLAIN = frozenset({*OPTION_NAMES, *SHORT, *MEDIA, "speculative_config", "weights_from"} - set(_COMPUTED))
"""Keywords that mean the same whatever engine counts."""


def _unknown_option(name: str) -> KvplanError:
    from kvplan.errors import did_you_mean
    from kvplan.plans.words import words_of

    names = [*OPTION_NAMES, *OWN_OPTIONS, *MEDIA]
    near = did_you_mean(name, [*names, *(word for engine in OPTIONS_OF for word in words_of(engine))])
    return KvplanError(
        "unknown-option",
        f"there is no option {name!r}",
        help=f"did you mean {near}?" if near else "options: " + ", ".join(names),
    )


_LISTED_LENGTHS = ("tokens", "max_model_len")
_ONE = ("gpu", "engine", "tokens", "requests", "kv_cache_dtype", "tp", "tensor_parallel_size",
        "max_model_len", "max_num_seqs")  # fmt: skip


def pieces_of(name: str, text: str) -> list[str]:
    """The values of a comma list; one where the commas part the thousands of a length (``32,768``)."""
    if name in _LISTED_LENGTHS and "," in text:
        try:
            parse_tokens(text)
        except KvplanError:
            pass
        else:
            return [text]
    return [piece.strip() for piece in text.split(",")]


def several(options: Mapping[str, object]) -> str | None:
    """Of keywords that have one value in an answer the one that has several; None where none has."""
    for name, value in options.items():
        if isinstance(value, (list, tuple)) and name in _ONE:
            return name
        if isinstance(value, str) and "," in value and name in _ONE and len(pieces_of(name, value)) > 1:
            return name
    return None
