"""Colour, encodings and pipes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.cli.terminal import wants_color
from tests.cli.conftest import GOLDEN, Run, Stream

ROOT = Path(__file__).resolve().parents[2]
SIZE = ("size", "inputs/llama.json", "--engine", "generic")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "color"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_when_there_is_colour(choice: str, environment: dict[str, str], terminal: bool, color: bool) -> None:
    assert wants_color(choice, Stream(terminal=terminal), environment) is color


@pytest.mark.parametrize(
    "arguments",
    [
        SIZE,
        (*SIZE, "--kv-cache-memory", "8GiB"),
        (*SIZE, "--tokens", "1k,4k", "--requests", "1,2"),
        (*SIZE, "--show", "formats"),
        ("explain", "inputs/llama.json", "--engine", "generic"),
        ("list", "gpus", "h100"),
    ],
)
def test_colour_is_all_that_a_terminal_has_more(run: Run, arguments: tuple[str, ...]) -> None:
    piped, shown = run(*arguments), run(*arguments, terminal=True)
    assert "\x1b[" not in piped.out
    assert "\x1b[" in shown.out
    assert _ESCAPE.sub("", shown.out) == piped.out


def test_an_error_is_coloured_on_a_terminal_only(run: Run) -> None:
    assert "\x1b[" in run("sise", terminal=True).err
    assert "\x1b[" not in run("sise").err
    assert "\x1b[" not in run("size", "x", "--tokns", "1", "--color", "never", terminal=True).err


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
@pytest.mark.parametrize(
    "arguments", [("explain", "inputs/llama.json", "-e", "generic"), ("size", "inputs/none.json")]
)
def test_ascii_where_the_output_is_not_utf8(run: Run, encoding: str, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments, encoding=encoding)
    assert (ran.out + ran.err).isascii()


def test_help_is_ascii(run: Run) -> None:
    for words in (
        (),
        ("size",),
        ("explain",),
        ("list", "models"),
        ("list", "gpus"),
        ("cards",),
        ("cards", "new"),
        ("schema",),
    ):
        ran = run(*words, "--help", encoding="ascii")
        assert ran.code == 0
        assert all(len(row) <= 80 for row in ran.out.splitlines()), words


def _kvplan(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kvplan", *arguments]


def _environment() -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVPLAN_")}
    return {**kept, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(GOLDEN), "PYTHONIOENCODING": "utf-8"}


def test_json_goes_through_a_pipe() -> None:
    sizing = subprocess.run(
        _kvplan(*SIZE, "--json"), cwd=GOLDEN, env=_environment(), capture_output=True, check=True
    )
    tool = [sys.executable, "-m", "json.tool"]
    checked = subprocess.run(tool, input=sizing.stdout, capture_output=True, check=True)
    assert json.loads(checked.stdout)["total"]["kv_bytes"] == 17_179_869_184
    assert sizing.stderr == b""


@pytest.mark.parametrize("arguments", [("list", "gpus", "--json"), ("size", "-h"), ("schema",)])
def test_a_reader_that_leaves_early_is_not_an_error(arguments: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        _kvplan(*arguments), cwd=GOLDEN, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


def test_the_same_question_gives_the_same_bytes() -> None:
    command = _kvplan(*SIZE, "--json")
    first, second = (
        subprocess.run(
            command,
            cwd=GOLDEN,
            env={**_environment(), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        for seed in ("1", "2")
    )
    assert first.stdout == second.stdout


def test_a_plain_size_loads_no_parser_no_colour_and_no_schema() -> None:
    heavy = ["typer", "click", "rich", "pydantic", "torch", "transformers"]
    code = (
        "import sys; from kvplan.cli import main; code = main(sys.argv[1:]);"
        f"loaded = [name for name in {heavy!r} if name in sys.modules];"
        "sys.exit(f'loaded {loaded}' if loaded or code else 0)"
    )
    command = [sys.executable, "-c", code, *SIZE]
    done = subprocess.run(
        command, cwd=GOLDEN, env=_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_fast_and_alone(run: Run) -> None:
    import kvplan

    assert run("--version") == (0, f"kvplan {kvplan.__version__}\n", "")
    assert run("-V").out == run("--version").out
