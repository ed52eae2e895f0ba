"""The words that engines have for settings: SGLang's ``context_length`` is max_model_len.

They are those of a plan's ``serve:`` (`kvplan.plans.serve`) and of the commands that start an engine, with
underscores. `kvplan size`, ``--set`` and the library take each engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from kvplan.engines import DEFAULT_ENGINE, OPTIONS_OF, OWN_OPTIONS, choose_engine, owners_of
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


def setting_of(word: str, engines: Iterable[str], known: Collection[str]) -> str | None:
    """The setting that a word means to these engines; None where none of them has it. known: settings that
    may be meant. A word for an option that one engine alone has is found whatever engine counts.

    Raises KvplanError(bad-usage) where it means several.
    """
    named = tuple(engines)
    if word in known and (word not in OWN_OPTIONS or set(owners_of(word)) & set(named)):
        return word
    meant = {setting for engine in named if (setting := words_of(engine).get(word, "")) in known}
    if len(meant) > 1:
        several = sorted(meant)
        raise KvplanError("bad-usage", f"to those engines {word} means {' or '.join(several)}", help=several)
    others = {setting for engine in OPTIONS_OF if (setting := words_of(engine).get(word, "")) in OWN_OPTIONS}
    found = meant or ({word} if word in known else others & set(known))
    return found.pop() if len(found) == 1 else None


def changes_no_memory(word: str, engines: Iterable[str]) -> bool:
    """Whether an engine's plans keep a flag of that name for those who start it: ``port``."""
    flags = (flags_of(engine).flags.get(word) for engine in engines)
    return any(flag is not None and flag.setting is None for flag in flags)


def elsewhere(
    word: str, known: Collection[str], written: Callable[[str], str], named: Callable[[str], str]
) -> KvplanError | None:
    """The error for a word that only engines that were not named have for a setting; None where none has it.

    written: how a setting, or the word, is written where it was typed; named: the same of an engine.
    """
    found = {engine: words_of(engine)[word] for engine in OPTIONS_OF if words_of(engine).get(word) in known}
    if not found:
        return None
    engine, setting = next(iter(found.items()))
    return KvplanError(
        "unknown-option",
        f"{written(word)} is {title_of(engine)}'s word for {written(setting)}",
        help=(written(setting), named(engine)),
    )
