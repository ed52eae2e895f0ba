"""No excerpt of a user's file shows a secret, and every figure of it stays readable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api.launching import import_launches
from kvplan.cli.run import run
from kvplan.cli.web import answered
from kvplan.errors import KvplanError
from kvplan.files.json_input import parse_json
from kvplan.files.yaml.strict import load_yaml
from kvplan.masking import hidden, is_secret, masked, remember
from kvplan.shown import secrets_kept

NAMES = (
    "HF_TOKEN", "api-key", "hf_token", "OPENAI_API_KEY", "dbPassword", "client.secret", "aws_credentials",
    "APIKEY",
)  # fmt: skip
OTHERS = (
    "max_num_batched_tokens", "num_key_value_heads", "tokens", "tokenizer", "kv_cache_dtype", "model",
    "token_embedding", "key_dim", "keyboard", "pad_token_id", "tokens_per_block",
)  # fmt: skip
FORMS = (
    ("", "command: vllm serve x --{name} {value} {{"),
    ("", '["vllm", "--{name}", "{value}", {{]'),
    ("  - --{name}", "  - {value}: {{"),
    ("- name: {name}", "  value: {value} ["),
    ("", "{name}={value} vllm serve {{"),
    ("", "{name}: '{value}' ["),
    ("", 'export {name}="{value}'),
    ("", '  "{name}": "{value}", {{'),
    ("vllm serve x --{name} \\", "  {value} \\"),
    ("", "[{{name: {name}, value: {value}}}]"),
    ("", "-e {name}={value}: {{"),
    ("", "url: https://x/?{name}={value}&a=1 ["),
)
"""The line above, and one that a reader stumbles over."""
VALUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{11,30}", fullmatch=True)


PLACED = {"name": st.sampled_from(NAMES), "form": st.sampled_from(FORMS), "value": VALUES}


@given(**PLACED)
@settings(max_examples=150, deadline=None)
def test_a_value_of_what_is_named_like_a_secret_is_masked(
    name: str, form: tuple[str, str], value: str
) -> None:
    above, line = (one.format(name=name, value=value) for one in form)
    shown = masked(line, above)
    assert value not in shown
    assert len(shown) == len(line), "a caret below stays where it was"


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    assert is_secret(f"--{name}")


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_sizes_are_none(name: str) -> None:
    assert not is_secret(name)
    assert masked(f"  {name}: 8192", f"  {name}:") == f"  {name}: 8192"


@pytest.mark.parametrize("token", ["sk-proj-abcdefgh12345", "hf_abcdefgh12345", "https://me:pass1234@host/x"])
def test_tokens_that_say_what_they_are(token: str) -> None:
    assert "1234" not in masked(f"  - {token}: {{")


DOORS: dict[str, Callable[[str], object]] = {
    "yaml": lambda text: load_yaml(text, name="x.yaml"),
    "json": lambda text: parse_json(("{\n" + text).encode(), name="x.json"),
    "launch": lambda text: import_launches("x.yaml", text=text),
}


@given(door=st.sampled_from(sorted(DOORS)), **PLACED)
@settings(max_examples=80, deadline=None)
def test_no_error_of_a_file_shows_one(door: str, name: str, form: tuple[str, str], value: str) -> None:
    above, line = (one.format(name=name, value=value) for one in form)
    said = ""
    try:
        DOORS[door](f"a: 1\n{above}\n{line}\n")
    except KvplanError as error:
        said = error.format() + json.dumps(error.as_dict())
    assert value not in said


@given(**PLACED)
@settings(max_examples=150, deadline=None)
def test_a_secret_of_one_line_is_hidden_wherever_it_is_said(
    name: str, form: tuple[str, str], value: str
) -> None:
    above, line = (one.format(name=name, value=value) for one in form)
    told = f"kvplan has no rule for {value}: it is in no figure of {value}9"
    with secrets_kept():
        remember(f"a: 1\n{above}\n{line}\nvllm: {value}\n")
        telling = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
        assert (value in hidden(told).replace(f"{value}9", "")) is not telling
        assert hidden(told).endswith(f"{value}9"), "another word"
        assert len(hidden(told)) == len(told)
    assert hidden(told) == told, "the next run has no secrets of this one"


@pytest.mark.parametrize(
    "text",
    ["- server: keys\n  model: Qwen/Qwen3-32B", "-e HF_TOKEN=$HF_TOKEN \\\n  $IMAGE --model Qwen/Qwen3-32B"],
)
def test_what_follows_a_secret_is_said(text: str) -> None:
    with secrets_kept():
        remember(text)
        assert hidden("Qwen/Qwen3-32B fits") == "Qwen/Qwen3-32B fits"


@pytest.mark.parametrize("line", ["HF_TOKEN: 12345678", "api_key: none", "token: vllm", "API_KEY=${API_KEY}"])
def test_no_figure_and_no_ordinary_word_is_ever_hidden(line: str) -> None:
    said = "vllm holds 12345678 B, none left; ${API_KEY} API_KEY"
    with secrets_kept():
        remember(line)
        assert hidden(said) == said


def test_a_secret_is_hidden_as_json_and_html_write_it() -> None:
    with secrets_kept():
        remember("HF_TOKEN: 'pa\\<1\u00e9&word'")
        for form in (json.dumps("a pa\\<1\u00e9&word b"), "a pa\\&lt;1\u00e9&amp;word b"):
            assert "word" not in hidden(form)


@pytest.mark.parametrize("line", [f"a{' ' * 10**5}b", f"token: value:{' ' * 10**5}b", f"token{' ' * 10**5}"])
def test_long_runs_of_blanks_take_no_time(line: str) -> None:
    begun = time.process_time()
    masked(line, "token:")
    masked(f"x{' ' * 10**5}y", line + " token")
    assert time.process_time() - begun < 1


def test_an_option_that_begins_as_a_token_does_is_none() -> None:
    assert masked("  hf_overrides: {}") == "  hf_overrides: {}"


TOKEN = "mcycywd984mka54ve5c3"
MANIFEST = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: a}}
spec:
  template:
    spec:
      containers:
      - name: server
        image: vllm/vllm-openai:v0.32.0
        command: [vllm, serve, Qwen/Qwen3-8B, --{TOKEN}, "3"]
        env: [{{name: OPENAI_API_KEY, value: {TOKEN}}}]
"""


@pytest.mark.parametrize("words", [["import"], ["size"], ["check"], ["check", "--format", "json"]])
def test_a_command_writes_no_secret_of_its_file(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    run([words[0], str(path), "-g", "h100", *words[1:]])
    said = "".join(capsys.readouterr())
    assert TOKEN not in said
    assert "*" * len(TOKEN) in said, "the word that it was would have been named"


def test_a_report_in_a_file_and_the_page_show_none(tmp_path: Path) -> None:
    path, report = tmp_path / "x.yaml", tmp_path / "report.md"
    path.write_text(MANIFEST, encoding="utf-8")
    run(["check", str(path), "--format", "markdown", "--output", str(report)])
    assert TOKEN not in report.read_text(encoding="utf-8")
    assert TOKEN not in answered("read", json.dumps([MANIFEST]))
