"""Every exit code, and the one form of every error."""

from __future__ import annotations

import json
import re

import pytest

from kvplan.cli.commands import Command
from kvplan.errors import CannotRunHere
from tests.cli.conftest import Run

LLAMA = ("size", "inputs/llama.json", "--engine", "generic")


def _raise(error: BaseException) -> object:
    def call(*_: object) -> None:
        raise error

    return call


def test_0_answered(run: Run) -> None:
    ran = run(*LLAMA)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("One request of 131,072 tokens")


def test_0_where_it_fits(run: Run) -> None:
    assert run(*LLAMA, "--kv-cache-memory", "16GiB").code == 0


def test_1_where_the_answer_is_no(run: Run) -> None:
    ran = run(*LLAMA, "--kv-cache-memory", "15GiB")
    assert ran.code == 1
    assert ran.out.startswith("No: ")
    assert ran.err == ""


def test_1_where_more_is_asked_for_than_fits(run: Run) -> None:
    ran = run(*LLAMA, "--kv-cache-memory", "40GiB", "--requests", "3")
    assert ran.code == 1
    assert "2 requests" in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("sise",), "unknown-command", "kvplan size"),
        (("import", "--", "ls", "-la"), "no-server", "`ls -la` starts no engine"),
        (
            ("size", "--gpu", "h100", "--", "python3", "train.py", "--tp", "2"),
            "no-server",
            "starts no engine",
        ),
        (("size", "qwen3-8b", "--gpu", "4900"), "unknown-gpu", "did you mean 4090?"),
        (("size",), "missing-argument", "kvplan size --help"),
        (("size", "inputs/llama.json", "--tokns", "4"), "unknown-option", "--tokens"),
        (("size", "inputs/llama.json", "--tokens"), "bad-usage", "--help"),
        (("explain", "a", "b"), "bad-usage", "--help"),
        (("cards", "nwe"), "unknown-command", "kvplan cards new"),
        (("size", "inputs/none.json"), "no-such-file", "inputs/none.json"),
        (("size", "lama-3.1-8b"), "unknown-model", "hf:"),
        (("size", "RTX 3060"), "unknown-model", 'kvplan size MODEL --gpu "RTX 3060"'),
        (("size", "ollama"), "unknown-model", "llama3.1:8b -e ollama"),
        (("size", "--", "ollama", "serve"), "no-model-named", "kvplan size MODEL -e ollama"),
        (("size", "2x3090"), "unknown-model", "kvplan fits --gpu 2x3090"),
        ((*LLAMA, "--gpu", "qwen3-8b"), "unknown-gpu", "kvplan size qwen3-8b --gpu"),
        (("validate", "--rehearse"), "unknown-option", "did you mean --device cpu?"),
        ((*LLAMA, "--gpu", "h1000"), "unknown-gpu", "did you mean"),
        (("size", "inputs/llama.json", "--engine", "vlm"), "unknown-engine", "vllm"),
        ((*LLAMA, "--kv-cache-memory", "80G"), "bad-size", "80GiB or 80GB"),
        ((*LLAMA, "--tokens", "4kk"), "bad-count", "--tokens 4kk"),
        ((*LLAMA, "--tp", "two"), "bad-count", "--tp two"),
        ((*LLAMA, "--requests", "0"), "bad-setting", "requests"),
        ((*LLAMA, "--tokens", "0"), "bad-setting", "token"),
        ((*LLAMA, "--kv-cache-dtype", "fp9"), "unknown-dtype", "fp8"),
        ((*LLAMA, "--usage", "batch"), "bad-setting", "server, llm"),
        ((*LLAMA, "--color", "blue"), "bad-usage", "auto, always, never"),
        ((*LLAMA, "--show", "lengths"), "bad-usage", "--kv-cache-memory 16GiB"),
        ((*LLAMA, "--speculative", "mtp"), "bad-setting", "mtp:1"),
        (("explain", "inputs/llama.json", "-e", "generic", "--tokens", "1k,2k"), "bad-usage", "one question"),
        (("list", "models", "--family", "mlaa"), "unknown-family", "mla"),
        (("schema", "crd"), "unknown-schema", "card"),
        (("size", "-", "-"), "bad-usage", "standard input"),
    ],
)
def test_2_where_it_cannot_answer(run: Run, arguments: tuple[str, ...], code: str, says: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"error[{code}]: ")
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_3_where_it_cannot_run_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "call", _raise(CannotRunHere("no-network", "the hub cannot be reached")))
    ran = run(*LLAMA)
    assert ran.code == 3
    assert ran.err == "error[no-network]: the hub cannot be reached\n"


def test_70_a_bug_is_not_an_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "call", _raise(ZeroDivisionError("division by zero")))
    ran = run(*LLAMA)
    assert ran.code == 70
    assert ran.err.startswith("error[bug]: kvplan itself failed (ZeroDivisionError: division by zero)\n")
    assert "--debug" in ran.err
    assert "Traceback" not in ran.err


def test_70_names_the_rule_that_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family or lineage of one's own is found by its file, line and function."""
    from kvplan.engines import base, generic

    for remembered in (base.part_terms, base.rank_terms, generic._plan):
        remembered.cache_clear()
    monkeypatch.setattr("kvplan.families.attention.kv_terms", _raise(TypeError("a width is missing")))
    ran = run("size", "inputs/llama.json", "-e", "generic", "-t", "777")
    assert ran.code == 70
    said = ran.err.replace("\n", " ")
    assert re.match(r"error\[bug\]: the rule in kvplan/families/attention\.py:\d+, terms +failed", said), (
        ran.err
    )
    assert "CONTRIBUTING.md" in said


def test_70_with_debug_shows_where(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "call", _raise(ZeroDivisionError("division by zero")))
    ran = run(*LLAMA, "--debug")
    assert ran.code == 70
    assert ran.err.startswith("Traceback")
    assert "error[bug]" in ran.err


def test_a_crash_of_the_slow_path_is_70_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "call", _raise(ZeroDivisionError("division by zero")))
    assert run("size", "inputs/llama.json", "-t4k").code == 70


def test_130_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "call", _raise(KeyboardInterrupt()))
    assert run(*LLAMA) == (130, "", "")
    assert run("size", "inputs/llama.json", "-t4k").code == 130


def test_with_json_an_error_is_json_too(run: Run) -> None:
    ran = run("size", "inputs/none.json", "--json")
    assert ran.code == 2
    data = json.loads(ran.out)
    assert data["error"]["code"] == "no-such-file"
    assert data["error"]["exit_code"] == 2
    assert ran.err.startswith("error[no-such-file]")


def test_with_json_a_mistake_on_the_command_line_is_json_too(run: Run) -> None:
    ran = run("size", "inputs/llama.json", "--tokns", "4", "--json")
    assert json.loads(ran.out)["error"]["help"][0] == "did you mean --tokens?"


def test_nothing_asked_shows_the_help(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    assert ran.out.startswith("Usage: kvplan")


SHORT = ("-g", "4090", "-t", "32k")
NO = [
    ("size", "qwen3-32b", *SHORT),
    ("size", "qwen3-8b", *SHORT, "-n", "9"),
    ("size", "qwen3-8b", "-g", "4090", "-t", "16k,32k", "-n", "9"),
    ("size", "qwen3-8b", "-g", "4090", "-t", "16k,32k", "-n", "9,12"),
    ("size", "qwen3-8b", "-g", "4090,3090", "-t", "32k", "-n", "9"),
    ("size", "qwen3-8b", "llama-3.1-8b", *SHORT, "-n", "9"),
    ("size", "qwen3-32b", *SHORT, "--show", "formats"),
    ("size", "qwen3-8b", "-g", "4090", "-t", "8k:30,32k:2"),
    ("size", "qwen3-32b", "-g", "4090", "--show", "lengths"),
    ("size", "qwen3-8b", "--kv-cache-memory", "1GiB", "-t", "16k,32k"),
    ("explain", "qwen3-32b", "--tp", "7"),
    ("explain", "qwen3-32b", "--tp", "7", "-v"),
    ("size", "qwen3-32b", "--tp", "7"),
    ("plan", "qwen3-32b", "-g", "4090", "--max-gpus", "1", "-t", "32k"),
    ("fits", "--gpu", "1GiB"),
]


@pytest.mark.parametrize("arguments", NO, ids=" ".join)
def test_where_the_exit_code_says_no_so_does_the_first_word(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("No: ")


def test_where_one_row_holds_what_was_asked_the_others_say_no(run: Run) -> None:
    ran = run("size", "qwen3-8b", "-g", "h100", "-t", "16k,32k", "-n", "20")
    assert ran.code == 0
    rows = [row.split() for row in ran.out.splitlines() if row.startswith(("  16,384", "  32,768"))]
    assert ["no" in row for row in rows] == [False, True]


def test_a_sweep_without_one_answer_is_no_no(run: Run) -> None:
    ran = run(
        "simulate", "llama-3.1-8b", "-g", "h100", "--generate", "requests=3,input=100,output=10,rate=1",
        "--sweep", "foo=1,2",
    )  # fmt: skip
    assert ran.code == 2
    assert "foo" in ran.out
