"""Help: fifteen options and three examples on one screen, and everything by task and engine."""

from __future__ import annotations

import shlex

import pytest

from kvplan.cli.commands import COMMANDS
from kvplan.cli.everyday import EVERYDAY
from kvplan.cli.options import ENGINE_GROUPS, OUTPUT, TASKS
from kvplan.cli.quick import parse
from tests.cli.conftest import Run

MOST_OPTIONS, MOST_LINES = 15, 30


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
def test_everything_is_in_help_all(run: Run, name: str) -> None:
    ran = run(*name.split(), "--help-all")
    assert (ran.code, ran.err) == (0, "")
    for option in COMMANDS[name].options:
        assert option.flags[0] in ran.out, option.name


def test_groups_stand_in_the_order_of_tasks_then_engines(run: Run) -> None:
    shown = [
        row[:-1]
        for row in run("size", "--help-all").out.splitlines()
        if row.endswith(":") and not row.startswith(" ") and row != "Examples:"
    ]
    wanted = [title for title in (*TASKS, *ENGINE_GROUPS, OUTPUT) if title in shown]
    assert shown == wanted
    assert {"LoRA adapters", "vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"} <= set(shown)


def test_an_engine_s_own_options_stand_under_it(run: Run) -> None:
    shown = run("size", "--help-all").out
    for title, flags in (
        ("vLLM", ("--gpu-memory-utilization", "--compile-cache")),
        ("SGLang", ("--mem-fraction-static", "--chunked-prefill-size")),
        ("LoRA adapters", ("--max-loras ", "--max-loras-per-batch", "--max-lora-rank")),
        ("llama.cpp", ("--ctx-size", "--n-gpu-layers")),
    ):
        section = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert all(flag in section for flag in flags), title


def test_after_two_dashes_it_is_a_word(run: Run) -> None:
    assert run("size", "--", "--help-all").code == 2


def test_help_is_as_wide_as_the_terminal(run: Run) -> None:
    rows = run("size", "--help-all", environment={"COLUMNS": "120"}).out.splitlines()
    assert 80 < max(map(len, rows)) <= 120
