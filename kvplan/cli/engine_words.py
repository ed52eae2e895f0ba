"""Engines' words on the command line: ``--context-length`` under SGLang, and ``--set NAME=VALUE``.

Both become our own flags before a command line is parsed, so that whatever reads one knows a single spelling.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from kvplan.cli.commands import Command, command_of
from kvplan.cli.lists import pieces_of
from kvplan.cli.options import SET, Option, switch
from kvplan.errors import KvplanError, did_you_mean

_ENGINE = ("--engine", "-e")


def in_our_words(arguments: list[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """The command line with our flags. Raises KvplanError for a word of an engine that is not named, and for
    a setting that there is not."""
    command = command_of(arguments)
    if command is None or not any(option.name == "engine" for option in command.options):
        return arguments
    flags = {flag: option for option in command.options for flag in (*option.flags, *option.off_flags)}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    made: list[str] = []
    rest = iter(arguments[:end])
    for word in rest:
        name, equals, value = word.partition("=")
        if name in SET.flags and flags.get(name) is SET:
            made += _set(value if equals else next(rest, ""), _Words(command, arguments[:end], environment))
        elif len(name) < 2 or name[0] != "-" or (name in flags and not flags[name].special):
            made.append(word)
        else:
            words = _Words(command, arguments[:end], environment)
            option = words.meant_by(name, flags.get(name))
            made.append(word if option is None else words.flag(option.name) + equals + value)
    return made + arguments[end:]


def _set(pair: str, words: _Words) -> list[str]:
    """``NAME=VALUE`` as a flag and its value."""
    name, equals, value = pair.partition("=")
    plain = _plain(name)
    if not equals or not plain:
        raise KvplanError(
            "bad-usage", f"--set takes NAME=VALUE, not {pair!r}", help="--set max_model_len=32k, for example"
        )
    option = words.by_name.get(plain) or words.of_engines(name)
    if option is None:
        near = did_you_mean(plain, [*words.by_name, *words.theirs()])
        raise KvplanError(
            "unknown-option",
            f"--set: there is no setting {name!r}",
            help=f"did you mean {near}?" if near else f"kvplan {words.command.name} --help-all",
        )
    if not option.is_switch:
        return [f"{words.flag(option.name)}={value}"]
    return [words.flag(option.name)] if switch(value) else list(option.off_flags[:1])


class _Words:
    """The words of a command line, as the engines that it names mean them."""

    def __init__(self, command: Command, arguments: list[str], environment: Mapping[str, str] | None) -> None:
        self.command = command
        self._arguments, self._environment = arguments, environment
        self._options = {option.name: option for option in command.options if option is not SET}
        spelt = {_plain(flag): option for option in self._options.values() for flag in option.flags}
        self.by_name = {**spelt, **self._options}

    def flag(self, setting: str) -> str:
        return next(flag for flag in self._options[setting].flags if flag.startswith("--"))

    def meant_by(self, flag: str, known: Option | None) -> Option | None:
        """Our option for an engine's flag; None where it is ours already, or nobody's."""
        if known is not None and _plain(flag) != known.name:
            return None
        option = self.of_engines(flag)
        return None if option is known else option

    def of_engines(self, word: str) -> Option | None:
        """Our option for an engine's word. Raises KvplanError for one of another engine."""
        from kvplan.plans.words import elsewhere, setting_of

        plain = _plain(word)
        setting = setting_of(plain, self._engines(), self._options)
        if setting is None:
            written = {plain: word}
            error = elsewhere(
                plain,
                self._options,
                lambda name: written.get(name) or self.flag(name),
                lambda name: f"-e {name}",
            )
            if error is not None:
                raise error
        return None if setting is None else self._options[setting]

    def theirs(self) -> Iterable[str]:
        from kvplan.plans.words import words_of

        return (word for engine in self._engines() for word in words_of(engine))

    def _engines(self) -> tuple[str, ...]:
        """The engines that count: as typed, in the environment or in the config file; else the default."""
        from kvplan.cli.given import ENV_PREFIX, config_path, read_config_file
        from kvplan.plans.words import engines_of

        typed = ""
        rest = iter(self._arguments)
        for word in rest:
            name, equals, value = word.partition("=")
            if name in _ENGINE:
                typed = value if equals else next(rest, "")
        environment = os.environ if self._environment is None else self._environment
        text = typed or environment.get(f"{ENV_PREFIX}ENGINE")
        if text:
            return engines_of(pieces_of(text, "engine"))
        path = config_path(environment)
        return engines_of(read_config_file(path).get("engine", ()) if path is not None else ())


def _plain(word: str) -> str:
    return word.strip().lstrip("-").replace("-", "_")


def words_beside(command: Command, engine: str) -> list[tuple[str, str]]:
    """An engine's words for options that have another name here, and that name."""
    from kvplan.plans.words import words_of

    words, rows = _Words(command, [], {}), []
    for word, setting in words_of(engine).items():
        option, ours = words.by_name.get(setting), words.by_name.get(word)
        if option is not None and (ours is None or (ours.special and engine not in ours.engines)):
            flag = f"--{word.replace('_', '-')}" if len(word) > _SHORTEST else f"-{word}"
            rows.append((flag, words.flag(option.name)))
    return rows


_SHORTEST = 3
"""Signs of words that stand after one hyphen: -c, -np, -ngl."""
