"""What the page is told, as Python tells it: the answers are those of the command line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.cli.web import FIELDS, GPUS, MODEL, MORE, answer, answered, fields_of, read, words_of
from kvplan.files.launch.shell.grammar import _parser
from tests.cli.conftest import Run
from tests.web.questions import questions

WEB = Path(__file__).resolve().parents[2] / "web"
CHAT = {"model": "qwen3-32b", "gpu": "h200", "tokens": "32k", "requests": "4", "kv_cache_dtype": "fp8"}


def test_an_answer_is_that_of_the_library() -> None:
    found = answer(CHAT)
    there = kvplan.size("qwen3-32b", gpu="h200", tokens=32768, requests=4, kv_cache_dtype="fp8")
    assert there.budget is not None
    assert there.pool is not None
    assert found["figures"] == {
        "kv_bytes_per_request": there.per_gpu.kv_bytes_per_request,
        "kv_pool_bytes": there.budget.kv_pool_bytes, "kv_pool_low_bytes": there.budget.kv_pool_low_bytes,
        "num_blocks": there.pool.num_blocks, "max_requests": there.pool.max_running,
    }  # fmt: skip
    tree = ElementTree.fromstring(f"<div>{found['memory']}{found['lines']}{found['lengths']}</div>")
    shown = {one.get("value") for one in tree.iter("data")}
    assert str(there.budget.kv_pool_bytes) in shown
    assert len(list(tree.iter("svg"))) == 2


def test_the_command_gives_the_same_answer(run: Run) -> None:
    found = answer(CHAT)
    program, *words = shlex.split(found["command"])
    assert program == "kvplan"
    ran = run(*words)
    assert f"{found['verdict']}: {found['answer']}" in " ".join(ran.out.split())
    assert (ran.code == 0) is found["ok"]


@pytest.mark.parametrize(
    "form",
    [
        {"model": "gpt-oss-120b", "gpu": "a100", "tokens": "64k", "requests": "40"},
        {"model": "llama-3.3-70b", "gpu": "h100", "gpus": "2", "tokens": "128k"},
        {"model": "gpt2", "tokens": "8k", "more": "--gpu l4"},
    ],
)
def test_a_suggestion_is_the_commands_and_asks_a_question_that_is_a_yes(
    run: Run, form: dict[str, str]
) -> None:
    found = answer(form)
    assert found["ok"] is False
    assert found["helps"]
    out = " ".join(run(*shlex.split(found["command"])[1:]).out.split())
    for one in found["helps"]:
        assert f"help: {one['words']}" in out
        if one["fields"] is not None:
            assert answer(one["fields"])["ok"], one["words"]
    assert any(one["fields"] for one in found["helps"])


def test_what_one_change_buys_is_what_it_asks() -> None:
    found = answer({"model": "qwen3-32b", "gpu": "h200", "tokens": "32k"})
    assert len(found["changes"]) == 3
    for one in found["changes"]:
        then = answer(one["fields"])
        assert then["figures"]["max_requests"] == one["requests"] > found["figures"]["max_requests"]


def test_other_tabs_show_the_commands_screens(run: Run, tmp_path: Path) -> None:
    log = Path(__file__).parent / "golden" / "inputs" / "budget.log"
    form = {"model": "qwen3-8b", "gpu": "l40s", "gpus": "1", "tokens": "8k", "requests": "4"}
    for what, text in (("plan", ""), ("compare", log.read_text(encoding="utf-8"))):
        found = json.loads(answered("screen", json.dumps([what, form, text])))
        words = shlex.split(found["command"])[1:]
        ran = run(*(str(log) if word == "server.log" else word for word in words))
        assert found["text"].split() == ran.out.replace(str(log), "server.log").split()
        assert found["ok"] is (ran.code == 0)
    error = json.loads(answered("screen", json.dumps(["compare", form, " "])))["error"]
    assert "no log yet" in error["message"]
    assert "--tokenz" in answered("screen", json.dumps(["fits", {**form, "more": "--tokenz 2"}]))


def test_the_plan_is_one_that_check_takes(run: Run, tmp_path: Path) -> None:
    made = json.loads(answered("plan", json.dumps([CHAT])))
    file = tmp_path / "plan.yaml"
    file.write_text(made["plan"], encoding="utf-8")
    ran = run("check", str(file))
    assert ran.code == 0, ran.out
    assert made["start"] == run("export", str(file)).out


def test_a_command_becomes_the_same_question() -> None:
    line = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --gpu-memory-utilization 0.85 --foo 3"
    found = read(line)
    assert "--tp 2" in found["fields"][MORE]
    assert "0.85" in found["fields"][MORE]
    assert any("--foo" in note for note in found["notes"])
    assert "error" not in json.loads(answered("answer", json.dumps([{**found["fields"], "gpu": "h100"}])))


def test_a_plain_command_needs_nothing_that_a_browser_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    _parser.cache_clear()
    assert read("vllm serve Qwen/Qwen3-32B --max-model-len 8k")["fields"]["max_model_len"] == "8000"
    script = json.loads(answered("read", json.dumps(["M=a/b\nvllm serve $M"])))
    assert script["error"]["code"] == "no-grammar"


def test_a_config_becomes_a_file() -> None:
    config = {"model_type": "llama", "hidden_size": 64}
    found = read(json.dumps(config))
    assert json.loads(found["config"]) == config
    assert found["fields"] == {MODEL: "./config.json"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "which model?"),
        ({"model": "nosuch-model-9b"}, "nosuch"),
        ({"model": "gpt2", "more": "--tokenz 3"}, "--tokenz"),
        ({"model": "gpt2", "more": "'"}, "does not close"),
        ({"model": "gpt2", "tokens": "1k,2k"}, "one question"),
        ({"model": "gpt2", "gpu": "h1000"}, "h1000"),
    ],
)
def test_a_mistake_is_an_error_with_words(fields: dict[str, str], said: str) -> None:
    error = json.loads(answered("answer", json.dumps([fields])))["error"]
    assert said in error["message"]


def test_every_question_has_an_answer() -> None:
    """Whatever is typed: JSON comes back, and markup in it is only kvplan's own."""
    kinds = set()
    for what, arguments in questions(60, seed=1):
        found = json.loads(answered(what, json.dumps(arguments)))
        kinds.add("error" if "error" in found else what)
        for part in ("memory", "lines", "lengths"):
            ElementTree.fromstring(f"<div>{found.get(part, '')}</div>")
        assert found.get("error", {}).get("code") != "bug", (what, arguments)
    assert kinds == {"answer", "plan", "read", "screen", "error"}


_word = st.text("abcXYZ019 .,'\"/@%=&<-", min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and not text.strip().startswith("-")
)


_several = st.integers(2, 9999).map(str)


@given(
    st.fixed_dictionaries({MODEL: _word}, optional=dict.fromkeys(FIELDS, _word)),
    st.none() | _several,
)
def test_fields_come_back_from_their_words(fields: dict[str, str], several: str | None) -> None:
    if several is not None and not set(",+") & set(fields.get("gpu", ",")):
        fields |= {GPUS: several}
    wanted = {name: value.strip() for name, value in fields.items()}
    assert fields_of(words_of(fields)) == wanted


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_words_are_too_strange(model: str, more: str) -> None:
    found: Any = json.loads(answered("answer", json.dumps([{"model": model, "more": f"--tokens {more}"}])))
    assert "answer" in found or found["error"]["code"] != "bug"


def test_an_answer_needs_the_standard_library_and_yaml() -> None:
    """The browser loads pydantic after the first answer, and never a terminal's libraries."""
    code = (
        "import sys\nfor name in ('pydantic', 'typer', 'rich', 'click'): sys.modules[name] = None\n"
        "from kvplan.cli.web import answered\nimport json\n"
        f"for asked in {[CHAT, {'model': 'gpt2'}]!r}:\n"
        "    assert 'answer' in json.loads(answered('answer', json.dumps([asked])))\n"
        "assert json.loads(answered('choices', '[]'))['model']\n"
        f"assert 'still-loading' in answered('plan', json.dumps([{CHAT!r}]))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=WEB.parent)


def test_the_form_has_every_field() -> None:
    form, script = ((WEB / name).read_text(encoding="utf-8") for name in ("index.html", "app.js"))
    for name in (MODEL, GPUS, MORE, *FIELDS):
        assert f'id="{name}" name="{name}"' in form
        assert f'<label for="{name}">' in form
        assert f'"{name}"' in script


def test_the_page_names_no_other_place() -> None:
    for file in WEB.iterdir():
        if file.suffix in (".html", ".js", ".css"):
            assert "://" not in file.read_text(encoding="utf-8"), file
    assert "resolved" not in (WEB / "package-lock.json").read_text(encoding="utf-8")
