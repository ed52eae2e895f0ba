"""Which keys of a config reach transformers' classes: an allow-list, because some of them choose code.

Allowed are the fields that the config class declares, its own aliases and the older spellings that its
``__post_init__`` reads. Of these, names that choose an implementation, a kernel, a backbone of another
library, a repository or a path are left out; so is every text that could name a repository or a file.
Source: huggingface/transformers 5.23.0 configuration_utils.py, integrations/hub_kernels.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from kvplan.errors import KvplanError

_CHOOSES_CODE = re.compile(
    r"^_|implementation|kernel_config|use_kernels|auto_map|backbone|timm|remote|name_or_path|(^|_)path$|repo|"
    r"revision|url|plugin|quantization|compression_config|custom_|pretrained|code_"
)
_BESIDE = re.compile(r"backbone|timm")
_TEXT = re.compile(r"[\w.,+*|() -]{0,4096}", re.ASCII)
_COUNTS = re.compile(r"layers?$|depths?$|blocks?$|experts$|num_stages|codebooks$")
MOST_MODULES, MOST_ENTRIES, DEEPEST = 4096, 4096, 6
"""How many modules of one kind, entries of one list and levels of nesting a class is given."""


def allowed_values(raw: Mapping[str, Any], config_class: type, classes: Mapping[str, type]) -> dict[str, Any]:
    """The keys and values of ``raw`` that the class is built from. classes: config classes by model type.

    Raises KvplanError: bad-config for sizes that no class is built with, no-weights for parts of another
    library.
    """
    return _level(raw, config_class, classes, 0)


def _level(
    raw: Mapping[str, Any], config_class: type, classes: Mapping[str, type], depth: int
) -> dict[str, Any]:
    if depth > DEEPEST:
        raise _refused("its parts are nested too deeply")
    known = _declared(config_class)
    parts: Mapping[str, Any] = getattr(config_class, "sub_configs", None) or {}
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        if not isinstance(key, str) or key not in known | parts.keys():
            continue
        if _BESIDE.search(key) and value:
            raise _refused(f"its {key[:60]} is another library's")
        if _CHOOSES_CODE.search(key):
            continue
        if key in parts and isinstance(value, Mapping):
            kept[key] = _part(key, value, parts[key], classes, depth + 1)
            continue
        ok, plain = _value(key, value, depth)
        if ok:
            kept[key] = plain
    return kept


def _declared(config_class: type) -> frozenset[str]:
    """Fields of the class and of those it inherits from, aliases, and what __post_init__ reads by name."""
    names = {entry.name for entry in fields(config_class)} if is_dataclass(config_class) else set()
    names |= set(getattr(config_class, "attribute_map", None) or {})
    for one in config_class.__mro__:
        code = getattr(vars(one).get("__post_init__"), "__code__", None)
        words = getattr(code, "co_consts", ())
        names |= {word for word in words if isinstance(word, str) and word.isidentifier()}
    return frozenset(names)


def _part(
    key: str, value: Mapping[str, Any], declared: Any, classes: Mapping[str, type], depth: int
) -> dict[str, Any]:
    """The keys of a part, with its model type where that chooses the class."""
    declared = getattr(declared, "config_class", declared)
    word = value.get("model_type")
    if isinstance(declared, type) and is_dataclass(declared):
        return _level(value, declared, classes, depth)
    if not isinstance(word, str) or word not in classes or _BESIDE.search(word):
        raise _refused(f"its {key[:60]} is no model type of the library's own")
    return {**_level(value, classes[word], classes, depth), "model_type": word}


def _value(key: str, value: Any, depth: int) -> tuple[bool, Any]:
    """Whether a value may pass, and the plain copy of it. Raises KvplanError(bad-config)."""
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return True, value
    if isinstance(value, int):
        most = MOST_MODULES if _COUNTS.search(key) else 2**31 - 1
        if abs(value) > most:
            raise KvplanError("bad-config", f"{key[:60]} is {value:,}: at most {most:,} are built")
        return True, value
    if isinstance(value, str):
        return _TEXT.fullmatch(value) is not None, value
    if depth >= DEEPEST or not isinstance(value, (list, tuple, Mapping)) or len(value) > MOST_ENTRIES:
        raise KvplanError("bad-config", f"{key[:60]} is too large or too deep to build a model from")
    if isinstance(value, Mapping):
        found = {str(name): _value(str(name), one, depth + 1) for name, one in value.items()}
        return True, {name: one for name, (ok, one) in found.items() if ok and not _CHOOSES_CODE.search(name)}
    entries = [_value(key, one, depth + 1) for one in value]
    return all(ok for ok, _ in entries), [one for _, one in entries]


def _refused(why: str) -> KvplanError:
    return KvplanError(
        "no-weights",
        f"transformers is not asked to build this model: {why}",
        help="give the weights of one GPU yourself: --weights 15GiB",
    )
