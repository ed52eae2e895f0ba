"""Tools for agents: the answers of the command line, over the protocol's own client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.cli.agents import SHORT, TOOLS, answered, input_schema, options_of, shortened
from kvplan.cli.commands import COMMANDS
from kvplan.errors import KvplanError
from tests.cli.conftest import GOLDEN, Run

H200 = {"gpu": "h200", "tokens": "8k"}
CALLS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "size": ("size", {"model": "qwen3-32b", **H200}, ["size", "qwen3-32b", "--gpu", "h200", "-t", "8k"]),
    "numbers": (
        "size",
        {"model": "qwen3-32b", "gpu": "h200", "tokens": 8192, "tensor_parallel_size": 2, "requests": 4},
        ["size", "qwen3-32b", "--gpu", "h200", "-t", "8192", "--tp", "2", "-n", "4"],
    ),
    "more": (
        "size",
        {"model": "llama-3.1-8b", **H200, "options": {"enable_lora": True, "--max-loras": 2}},
        ["size", "llama-3.1-8b", "--gpu", "h200", "-t", "8k", "--enable-lora", "--max-loras", "2"],
    ),
    "no": ("size", {"model": "llama-3.3-70b", "gpu": "l40s"}, ["size", "llama-3.3-70b", "--gpu", "l40s"]),
    "plan": (
        "plan",
        {"model": "qwen3-32b", "gpu": ["h100", "h200"], "requests": 16, "tokens": "8k"},
        ["plan", "qwen3-32b", "--gpu", "h100,h200", "-n", "16", "-t", "8k"],
    ),
    "explain": ("explain", {"model": "deepseek-v3"}, ["explain", "deepseek-v3"]),
    "check": ("check", {"path": "inputs/plans/chat.yaml"}, ["check", "inputs/plans/chat.yaml"]),
    "fits": (
        "fits",
        {"model": "qwen3", "gpu": "l40s", "tokens": "4k"},
        ["fits", "qwen3", "--gpu", "l40s", "-t", "4k"],
    ),
    "compare": (
        "compare",
        {"path": "inputs/budget.log", "gpu": "h100"},
        ["compare", "inputs/budget.log", "--gpu", "h100"],
    ),
}


@pytest.mark.parametrize("which", CALLS)
def test_a_tool_answers_as_the_command_does(run: Run, which: str) -> None:
    tool, arguments, words = CALLS[which]
    found, ran = answered(tool, {**arguments, "detail": "full"}), run(*words, "--json")
    assert found.data == json.loads(ran.out) == json.loads(found.text)
    assert found.code == ran.code


@pytest.mark.parametrize("which", CALLS)
def test_unasked_it_is_what_a_person_reads(run: Run, which: str) -> None:
    tool, arguments, words = CALLS[which]
    found, ran = answered(tool, arguments), run(*words)
    assert found.text == shortened(ran.out)
    assert found.code == ran.code
    assert found.data is None


@given(text=st.text("ab \n", max_size=3000).map(lambda part: part * 3))
def test_a_short_answer_is_whole_paragraphs_and_says_what_was_left_out(text: str) -> None:
    found = shortened(text)
    assert len(found) <= SHORT
    if found != text:
        kept, _, note = found.rpartition("\n(")
        assert text.startswith(kept)
        assert len(kept.splitlines()) + int(note.split()[0]) == len(text.splitlines())


def test_a_plan_may_be_sent_as_text(run: Run) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "check" / "rag.yaml"
    text = path.read_text(encoding="utf-8")
    found, ran = answered("check", {"text": text, "detail": "full"}), run("check", str(path), "--json")
    assert found.data is not None
    facts = [data["plans"][0]["facts"] for data in (found.data, json.loads(ran.out))]
    assert facts[0] == facts[1] != []
    assert (found.code, ran.code) == (1, 1)
    broken = answered("check", {"text": text.replace("kvplan: plan/v1", "kvplan: plan/v9")})
    assert broken.code == 2


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("sise", {}, "no tool"),
        ("size", {}, "which model"),
        ("size", {"model": "-"}, "is no model"),
        ("size", {"model": "--help"}, "is no model"),
        ("size", {"model": "qwen3-32b", "tokns": 5}, "did you mean tokens?"),
        ("size", {"model": "qwen3-32b", "tokens": True}, "a text or a number"),
        ("size", {"model": "qwen3-32b", "enforce_eager": "yes"}, "true or false"),
        ("size", {"model": "qwen3-32b", "options": [1]}, "an object"),
        ("size", {"model": "qwen3-33b"}, "did you mean"),
        ("plan", {"model": "qwen3-32b", "write": "x.yaml"}, "no option 'write'"),
        ("plan", {"model": "qwen3-32b", "options": {"--write": "x.yaml"}}, "no option '--write'"),
        ("check", {}, "one of them"),
        ("check", {"path": "a", "text": "b"}, "one of them"),
        ("check", {"path": "-"}, "is no path"),
    ],
)
def test_a_wrong_call_is_said_in_words(run: Run, tool: str, arguments: dict[str, Any], says: str) -> None:
    del run
    with pytest.raises(KvplanError) as raised:
        answered(tool, arguments)
    assert says in raised.value.format()


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_a_tool_writes_nothing(tool: Any) -> None:
    assert not {"write", "overwrite", "output", "html", "baseline_update"} & set(options_of(tool))
    left = {option.name for option in COMMANDS[tool.name].options} - set(options_of(tool))
    assert "json" in left


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_a_schema_is_one_and_takes_the_calls(tool: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the test extras")
    schema = input_schema(tool)
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, arguments, _ in CALLS.values():
        if name == tool.name and not any(isinstance(value, list) for value in arguments.values()):
            jsonschema.validate(arguments, schema)
    assert len(json.dumps(schema)) < 6000


def test_without_the_package_it_says_which(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    ran = run("mcp")
    assert ran.code == 3
    assert "pip install 'kvplan[mcp]'" in ran.err


def _talk(calls: list[tuple[str, dict[str, Any]]], folder: Path) -> tuple[Any, list[Any]]:
    """The tools and the results, asked by the SDK's client of a process of its own."""
    import anyio
    from mcp import Client, StdioServerParameters, stdio_client

    async def ask() -> tuple[Any, list[Any]]:
        start = StdioServerParameters(command=sys.executable, args=["-m", "kvplan", "mcp"], cwd=folder)
        start.env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        async with Client(stdio_client(start)) as client:
            tools = await client.list_tools()
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(ask)


def test_over_the_protocol(run: Run) -> None:
    """One server: its tools, an answer, a no, and an error that leaves it running."""
    pytest.importorskip("mcp", reason="mcp comes with the test extras")
    asked = [CALLS[which][:2] for which in ("size", "no", "check")]
    wrong = ("size", {"model": "qwen3-33b"})
    tools, (sized, no, checked, error, again) = _talk([*asked, wrong, asked[0]], GOLDEN)
    assert [tool.name for tool in tools.tools] == list(TOOLS)
    assert all(tool.annotations.read_only_hint for tool in tools.tools)
    for result, which in ((sized, "size"), (no, "no"), (checked, "check")):
        ran = run(*CALLS[which][2])
        assert result.content[0].text == shortened(ran.out)
        assert result.structured_content is None
        assert not result.is_error
        assert result.content[1].text.startswith(f"exit code {ran.code}: ")
    assert error.is_error
    assert error.structured_content["error"]["code"] == "unknown-model"
    assert again.content == sized.content
