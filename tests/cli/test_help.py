"""Help: fifteen options and three examples on one screen, and everything by task and engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import kvplan
from kvplan.cli.commands import COMMANDS
from kvplan.cli.everyday import EVERYDAY
from kvplan.cli.options import OUTPUT, TASKS
from kvplan.cli.quick import parse
from tests.cli.conftest import Run

MOST_OPTIONS, MOST_LINES = 15, 30
PACKAGE = Path(kvplan.__file__).parent


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_one_screen(run: Run, name: str, flag: str) -> None:
    ran = run(*name.split(), flag)
    rows = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, rows)) <= 80
    if name in EVERYDAY:
        assert len(rows) <= MOST_LINES
        assert rows[-1].endswith(f"kvplan {name} --help-all")
    else:
        assert len(COMMANDS[name].options) <= MOST_OPTIONS


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_options_are_options_of_the_command(name: str) -> None:
    known = [option.name for option in COMMANDS[name].options]
    shown = [option for option, _ in EVERYDAY[name].options]
    assert len(shown) == len(set(shown)) <= MOST_OPTIONS
    assert set(shown) <= set(known)


@pytest.mark.parametrize("name", EVERYDAY)
def test_examples_are_command_lines_that_are_understood(name: str) -> None:
    assert len(EVERYDAY[name].examples) == 3
    for line, words in EVERYDAY[name].examples:
        program, *arguments = shlex.split(line)
        parsed = parse(arguments, {})
        assert program == "kvplan"
        assert words
        assert parsed is not None, line
        assert parsed[0].name == name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_help_all_or_in_an_engine_s_help(run: Run, name: str) -> None:
    ran = run(*name.split(), "--help-all")
    assert (ran.code, ran.err) == (0, "")
    of_engines = {engine for option in COMMANDS[name].options for engine in option.engines}
    pages = {engine: run(*name.split(), "--help", engine).out for engine in of_engines}
    words = {word.rstrip(",") for row in ran.out.splitlines() for word in row.split()}
    for option in COMMANDS[name].options:
        assert (option.flags[0] in words) is not bool(option.engines), option.name
        assert all(option.flags[0] in pages[engine] for engine in option.engines), option.name


def test_groups_stand_in_the_order_of_tasks(run: Run) -> None:
    shown = [
        row[:-1]
        for row in run("size", "--help-all").out.splitlines()
        if row.endswith(":") and not row.startswith(" ") and row != "Examples:"
    ]
    assert shown == [title for title in (*TASKS, OUTPUT) if title in shown]


@pytest.mark.parametrize("name", ["size", "explain", "plan"])
@pytest.mark.parametrize(
    ("engine", "own", "names"),
    [
        ("vllm", ("--compile-cache", "--max-loras "), ()),
        ("sglang", ("--mem-fraction-static", "--max-loras-per-batch"), ("--context-length", "--tp-size")),
        ("TensorRT-LLM", ("--free-gpu-memory-fraction",), ("--max-seq-len", "--max-batch-size")),
        ("llama.cpp", ("--n-gpu-layers",), ("--cache-prompt",)),
    ],
)
def test_help_of_an_engine(
    run: Run, name: str, engine: str, own: tuple[str, ...], names: tuple[str, ...]
) -> None:
    ran = run(name, "--help", engine)
    assert (ran.code, ran.err) == (0, "")
    assert all(flag in ran.out for flag in (*own, *names))
    assert "--tokens " not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_after_two_dashes_it_is_a_word(run: Run) -> None:
    assert run("size", "--", "--help-all").code == 2


def test_help_is_as_wide_as_the_terminal(run: Run) -> None:
    rows = run("size", "--help-all", environment={"COLUMNS": "120"}).out.splitlines()
    assert 80 < max(map(len, rows)) <= 120


def test_a_text_names_only_commands_that_there_are() -> None:
    """`kvplan …` in the code: a command that was renamed is not recommended any more."""
    known = {" ".join(name.split()[:words]) for name in COMMANDS for words in (1, 2)}
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for first, second in re.findall(r"`kvplan ([a-z]+)(?: ([a-z]+))?", path.read_text(encoding="utf-8")):
            said = f"{first} {second}" if first in groups and second else first
            if said not in known:
                wrong.append(f"{path.relative_to(PACKAGE)}: kvplan {said}")
    assert wrong == []
