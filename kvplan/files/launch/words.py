"""The words of a server's command, taken apart as the server's own parser would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.engines.launch import Server, ServerFlag, table_of
from kvplan.later import regex
from kvplan.record import record

_NUMBER = regex(r"-\d+(\.\d*)?(e-?\d+)?", re.ASCII)
_OPTION = regex(r"--?[A-Za-z]", re.ASCII)
_ATTACHED = regex(r"(-[A-Za-z])(\d+)", re.ASCII)
"""A short option and its number in one word."""


@record()
class Option:
    """One option as given. spelled: the user's word. flag: None where the server has no such option that is
    known. value: True or False for a switch, a text, a list of texts, an object (dotted keys, JSON)."""

    spelled: str
    flag: ServerFlag | None
    value: Any


@record()
class Words:
    """A command taken apart."""

    options: tuple[Option, ...]
    rest: tuple[str, ...]


def take_apart(server: Server, words: Sequence[str]) -> Words:
    """Options with their values, and the words that belong to none.

    Argparse's rules (click's and llama.cpp's are narrower): ``--flag=value``, ``-O3``, a beginning that only
    one option has, underscores for hyphens in a long option, a dotted option (``--compilation-config.mode
    3``) as one key of its JSON object (vllm 0.33 vllm/utils/argparse_utils.py). An unknown option takes the
    next word unless that begins with a hyphen: nothing says how many are its own.
    """
    table = table_of(server)
    options: list[Option] = []
    rest: list[str] = []
    objects: dict[tuple[str, ...], dict[str, object]] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            continue
        if not _OPTION.match(word):
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        flag, keys = _known(table, name)
        if flag is None and (close := _ATTACHED.fullmatch(word)) and close[1] in table:
            (name, value), equals = close.groups(), "="
            flag = table[name]
        given = [value] if equals else []
        if not equals:
            taken = _taken(flag, words, place)
            if flag is not None and flag.names[0] in server.worded and taken == 0:
                taken = int(" ".join(words[place : place + 1]).lower() in ("true", "false"))
            given = list(words[place : place + taken])
            place += taken
        if flag is None:
            options.append(Option(word if equals else name, None, given))
        elif keys:
            whole = objects.setdefault(flag.names, {})
            if not any(option.flag is flag for option in options):
                options.append(Option(flag.names[0], flag, whole))
            _put(whole, keys, given[0] if given else True)
        else:
            options.append(Option(name, flag, _value(flag, name, given)))
    return Words(tuple(options), tuple(rest))


def _known(table: Mapping[str, ServerFlag], name: str) -> tuple[ServerFlag | None, tuple[str, ...]]:
    """(the option, keys below it)."""
    for spelled in (name, "--" + name[2:].replace("_", "-"), "--" + name[2:].replace("-", "_")):
        if spelled in table and (spelled == name or name.startswith("--")):
            return table[spelled], ()
    if name.startswith("--") and len(name) > 3:
        meant = {
            flag.names: flag for spelled, flag in table.items() if spelled.startswith(name.replace("_", "-"))
        }
        if len(meant) == 1:
            return next(iter(meant.values())), ()
    head, dot, keys = name.partition(".")
    if dot and head.startswith("--"):
        flag, below = _known(table, head)
        if flag is not None and not below:
            return flag, tuple(keys.split("."))
    return None, ()


def _taken(flag: ServerFlag | None, words: Sequence[str], place: int) -> int:
    """How many of the words at ``place`` are the option's values."""
    free = 0
    for word in words[place:]:
        if _OPTION.match(word) and not _NUMBER.fullmatch(word):
            break
        free += 1
    if flag is None:
        return min(free, 1)
    if flag.values.isdigit():
        return min(int(flag.values), len(words) - place)
    return min(free, 1) if flag.values == "?" else free


def _value(flag: ServerFlag, name: str, given: list[str]) -> object:
    if flag.values == "0":
        said = given[0].lower() not in ("false", "0", "no") if given else True
        return said != flag.negated("--" + name.lstrip("-").replace("_", "-"))
    if flag.values in ("+", "*") or flag.values == "2":
        return given
    return given[0] if given else None


def _put(whole: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    *parents, last = keys
    for key in parents:
        inner = whole.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        whole = inner
    try:
        whole[last] = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        whole[last] = value
