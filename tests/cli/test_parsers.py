"""The quick parser takes only what typer reads in the same way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvplan.cli import quick
from kvplan.cli.app import root_command
from kvplan.cli.commands import COMMANDS, Command
from kvplan.cli.terminal import Answer
from kvplan.errors import KvplanError

ROOT = root_command()


def _by_typer(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[str], dict[str, Any]] | None:
    """Command, words and given options as typer understands them; None where it complains or shows help."""
    seen: list[tuple[str, list[str], dict[str, Any]]] = []

    def call(self: Command, words: list[str], values: dict[str, Any]) -> Answer:
        given_ones = {name: value for name, value in values.items() if value is not None}
        seen.append((self.name, words, given_ones))
        return Answer(text="")

    with monkeypatch.context() as patch:
        patch.setattr(Command, "call", call)
        try:
            ROOT.main(arguments, prog_name="kvplan", standalone_mode=False)
        except KvplanError:
            return None
        except Exception as error:
            if hasattr(error, "format_message"):
                return None
            raise
    return seen[0] if seen else None


def _words(command: Command) -> st.SearchStrategy[str]:
    flags = [flag for option in command.options for flag in (*option.flags, *option.off_flags)]
    return st.sampled_from(
        [
            *flags,
            *(f"{flag}=7" for flag in flags),
            "8",
            "model",
            "a b",
            "-",
            "--",
            "-1",
            "--nope",
            "-t4k",
            "--tok",
            "",
        ]
    )


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(list(COMMANDS.values())))
    return [*command.name.split(), *draw(st.lists(_words(command), max_size=7))]


@given(arguments=command_lines())
@example(arguments=["simulate", "-cmoe"])
@settings(max_examples=600, deadline=None)
def test_the_two_parsers_agree(arguments: list[str]) -> None:
    parsed = quick.parse(arguments, {})
    if parsed is None:
        return
    command, words, values = parsed
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert _by_typer(arguments, monkeypatch) == (command.name, words, values)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: str(command.name))
def test_every_spelling_of_every_option_is_read_alike(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short forms of switches too, which stand in no pair of yes and no."""
    words = ["model"] * command.argument.least if command.argument else []
    for option in command.options:
        for flag, state in [*((f, True) for f in option.flags), *((f, False) for f in option.off_flags)]:
            line = [*command.name.split(), flag, *(() if option.is_switch else ("7",)), *words]
            value: object = state if option.is_switch else "7"
            assert _by_typer(line, monkeypatch) == (command.name, words, {option.name: value}), flag
            taken = quick.parse(line, {})
            assert taken is None or (taken[0].name, *taken[1:]) == (command.name, words, {option.name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        ["size", "model", "--tokens", "4k", "-n", "8", "--json"],
        ["size", "a", "b", "--engine=all", "--no-enable-prefix-caching"],
        ["explain", "--tp", "2", "model"],
        ["cards", "new", "-", "-o", "x.yaml"],
        ["list", "gpus"],
        ["size", "--", "--odd-name"],
    ],
)
def test_plain_lines_are_taken(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = quick.parse(arguments, {})
    assert parsed is not None
    assert _by_typer(arguments, monkeypatch) == (parsed[0].name, *parsed[1:])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["size"],
        ["size", "-h"],
        ["sise", "model"],
        ["cards"],
        ["--version"],
        ["size", "model", "--tokens"],
        ["size", "model", "--tokens", "-5"],
        ["size", "model", "--json=1"],
        ["size", "model", "-t4k"],
        ["explain", "a", "b"],
    ],
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert quick.parse(arguments, {}) is None


def test_completion_is_left_to_typer() -> None:
    assert quick.parse(["size", "model"], {"_KVPLAN_COMPLETE": "complete_bash"}) is None
