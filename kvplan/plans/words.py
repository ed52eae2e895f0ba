"""The words that engines have for settings: SGLang's ``context_length`` is max_model_len.

They are those of a plan's ``serve:`` (`kvplan.plans.serve`) and of the commands that start an engine, with
underscores. `kvplan size`, ``--set`` and the library take each engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from kvplan.engines import DEFAULT_ENGINE, OPTIONS_OF, OWN_OPTIONS, choose_engine
from kvplan.engines.folders import part_of, title_of
from kvplan.errors import KvplanError
from kvplan.plans.serve import flags_of


@cache
def words_of(engine: str) -> Mapping[str, str]:
    """Each word of an engine and the setting, or the engine's own option, that it sets."""
    flags, table = flags_of(engine), part_of(engine, "command")
    found = {flag.name: flag.setting for flag in flags.flags.values() if flag.setting is not None}
    found |= {short: found[long] for short, long in flags.short.items() if long in found}
    for setting, argument in table.TABLE.settings.items() if table is not None else ():
        word = argument.flag.rpartition(".")[2].lstrip("-").replace("-", "_")
        if word and argument.write is None and argument.words is None:
            found.setdefault(word, setting)
    return found


def engines_of(specs: Iterable[str]) -> tuple[str, ...]:
    """The engines that are named (``all``: every one), else the default one. Raises KvplanError."""
    named = [spec for spec in specs if spec]
    if "all" in named:
        return tuple(OPTIONS_OF)
    return tuple(choose_engine(spec).engine.name for spec in named) or (DEFAULT_ENGINE,)


def setting_of(word: str, engines: Iterable[str], known: Iterable[str]) -> str | None:
    """The setting that a word means to these engines; None where none of them has it. known: settings that
    may be meant. An option that one engine alone has is found by its words whatever engine counts.

    Raises KvplanError(bad-usage) where it means several.
    """
    ours = set(known)
    meant = {setting for engine in engines if (setting := words_of(engine).get(word)) in ours}
    if len(meant) > 1:
        several = " and ".join(sorted(str(setting) for setting in meant))
        raise KvplanError(
            "bad-usage", f"{word} means {several} to the engines named", help=sorted(map(str, meant))
        )
    others = {words_of(engine).get(word) for engine in OPTIONS_OF} & ours & set(OWN_OPTIONS)
    return next(iter(meant or (others if len(others) == 1 else ())), None)


def elsewhere(
    word: str, known: Iterable[str], written: Callable[[str], str], named: Callable[[str], str]
) -> KvplanError | None:
    """What is said of a word that other engines than those named have for a setting; None where none has.

    written: how a setting, or the word, is written where it was typed; named: the same of an engine.
    """
    ours = set(known)
    found = {engine: words_of(engine)[word] for engine in OPTIONS_OF if words_of(engine).get(word) in ours}
    if not found:
        return None
    engine, setting = next(iter(found.items()))
    return KvplanError(
        "unknown-option",
        f"{written(word)} is {title_of(engine)}'s word for {written(setting)}",
        help=(written(setting), named(engine)),
    )
