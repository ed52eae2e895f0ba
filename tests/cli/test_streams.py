"""What goes in and out of the process: full and closed streams, pipes and devices, names that cannot be,
characters that a terminal would obey.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from kvplan.errors import did_you_mean
from kvplan.files.folders import MAX_FILES, files_below
from kvplan.files.yaml.strict import MAX_KEYS
from kvplan.files.yaml.validation import MAX_MISTAKES
from tests.cli.conftest import Run

PLAN = "kvplan: plan/v1\nmodel: llama-3.1-8b\ngpu: h100\n"
POSIX = pytest.mark.skipif(os.name == "nt", reason="streams and devices of a Unix")
LONG = "x" * 300


def start(shell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of the shell, in which $K is kvplan."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "K": f"{sys.executable} -m kvplan", "PYTHONPATH": root}
    return subprocess.run(
        ["/bin/sh", "-c", shell], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@POSIX
@pytest.mark.parametrize(
    "command", ["--version", "size gpt2", "size gpt2 --json", "nothing --json", "--help"]
)
@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_an_answer_that_cannot_be_written(tmp_path: Path, command: str, stream: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = start(f"$K {command} {stream}", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert done.stderr.startswith("error[cannot-write]" if "nothing" not in command else "error[unknown")


@POSIX
@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", "2>&- >&-"])
def test_an_error_that_nobody_hears(tmp_path: Path, stream: str) -> None:
    assert start(f"$K size nothing-like-this {stream}", tmp_path).returncode == 2


@POSIX
@pytest.mark.parametrize("command", ["size -", "check -", "compare gpt2 --log -", "explain -"])
def test_a_closed_standard_input(tmp_path: Path, command: str) -> None:
    done = start(f"$K {command} <&-", tmp_path)
    assert (done.returncode, "standard input is closed" in done.stderr) == (2, True), done.stderr


@POSIX
def test_nobody_waits_for_a_pipe_or_a_device(tmp_path: Path, run: Run) -> None:
    for name in ("fifo", "fifo.yaml", "fifo.json", "config.json", "x.gguf"):
        os.mkfifo(tmp_path / name)
    for words in (
        ["cards", "lint", "fifo"], ["check", "fifo"], ["check", "fifo.yaml"], ["size", "fifo.yaml"],
        ["size", "fifo"], ["size", "config.json"], ["size", "x.gguf"], ["size", "."], ["export", "fifo.yaml"],
        ["list", "receipts", "fifo.json"], ["size", "gpt2", "--gpu", "fifo.yaml"],
        ["compare", "--log", "/dev/zero"], ["cards", "lint", "/dev/zero"], ["compare", "--log", "."],
        ["validate", "fifo.yaml", "--dry-run"],
        ["plan", "gpt2", "--gpu", "h100", "--trace", "fifo"], ["cards", "new", "fifo"],
    ):  # fmt: skip
        done = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in words]
        ran = run(*done)
        assert ran.code == 2, (words, ran)


@pytest.mark.parametrize("name", [LONG, f"{LONG}.yaml", f"{LONG}.gguf", "a\0b", "\n", "\udcff", "a\0.yaml"])
def test_names_that_no_file_has(run: Run, name: str) -> None:
    for words in (
        ["check"], ["export"], ["list", "receipts"], ["size"], ["explain"], ["cards", "lint"],
        ["cards", "new"], ["gpu"], ["validate", "--dry-run"], ["compare", "--log"], ["size", "gpt2", "--gpu"],
        ["check", "--baseline", "."],
        ["plan", "gpt2", "--gpu", "h100", "--trace"], ["plan", "gpt2", "--fleet"], ["schema"],
        ["list", "models"],
    ):  # fmt: skip
        ran = run(*words, name)
        assert ran.code in (0, 1, 2, 3), (words, ran)
        assert (ran.code == 0) <= (words == ["list", "models"])


ESCAPES = "\x1b[2J\x1b]0;x\x07\x9b31m\x00\x08\u202e\u2066\u200f\u061c\r\x7f"


CONTROL = {
    *map(chr, range(32)),
    *map(chr, range(127, 160)),
    *(sign for sign in ESCAPES if not sign.isprintable()),
}


def free_of_control(text: str) -> bool:
    """Nothing that a terminal obeys but newline and tab."""
    return not set(text) & (CONTROL - {"\n", "\t"})


@pytest.mark.parametrize("color", ["never", "always"])
def test_nothing_typed_reaches_the_terminal_raw(run: Run, color: str) -> None:
    for words in (
        ["size"], ["size", "gpt2", "--engine"], ["size", "gpt2", "--gpu"], ["check"], ["list", "models"],
        ["list", "gpus"], ["gpu"], ["size", "gpt2", "--tokens"], ["explain"], ["export"],
        ["list", "receipts"], ["compare", "--url"], ["schema"], ["size", "gpt2", "--kv-cache-dtype"],
        ["no"], ["--no"],
    ):  # fmt: skip
        ran = run(*words, f"a{ESCAPES}b", *([f"--color={color}"] if words[0] not in ("no", "--no") else []))
        plain = ran.out + ran.err
        for style in (
            "\x1b[31;1m",
            "\x1b[1;31m",
            "\x1b[1;32m",
            "\x1b[33m",
            "\x1b[36m",
            "\x1b[0m",
            "\x1b[31m",
            "\x1b[1m",
            "\x1b[2m",
        ):
            plain = plain.replace(style, "")
        assert free_of_control(plain), (words, ran)
        assert ran.code != 70


@pytest.mark.parametrize(
    "key", ["model", "name", "gpu", "engine", "x", "evidence", "serve.max_model_len", "extends"]
)
def test_a_plan_with_escapes_is_refused(run: Run, tmp_path: Path, key: str) -> None:
    """In a text and in a key; every form of the report."""
    shown = json.dumps(f"a{ESCAPES}b")
    head, _, inner = key.partition(".")
    for line in (f"{head}: {{{inner}: {shown}}}" if inner else f"{key}: {shown}", f"{shown}: 1"):
        lines = [one for one in PLAN.splitlines() if not one.startswith(f"{head}:")]
        path = tmp_path / "plan.yaml"
        path.write_text("\n".join([*lines, line, ""]), encoding="utf-8")
        for form in ("text", "github", "markdown", "junit", "sarif", "json"):
            ran = run("check", str(path), "--format", form)
            assert ran.code == 2, ran
            assert free_of_control(ran.out + ran.err), (form, ran)
        assert run("export", str(path)).code == 2


@pytest.mark.parametrize("name", ["two\nlines", "a\u2028b", "a\u202eb", "\x00"])
def test_a_plan_is_called_by_one_line(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"{PLAN}name: {json.dumps(name)}\n", encoding="utf-8")
    ran = run("check", str(path))
    assert free_of_control(ran.out)
    assert "\u2028" not in ran.out
    assert ran.code == 2 or name == "a\u2028b"


def test_a_config_with_escapes(run: Run, tmp_path: Path) -> None:
    for key in ("model_type", "architectures", "torch_dtype", "layer_types"):
        value = f"a{ESCAPES}b"
        listed = key in ("architectures", "layer_types")
        raw = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
               key: [value] if listed else value}  # fmt: skip
        path = tmp_path / "config.json"
        path.write_text(json.dumps(raw), encoding="utf-8")
        for words in (["size"], ["explain"], ["size", "--gpu", "h100"], ["cards", "new"]):
            ran = run(
                words[0], *words[1:2] * (words[0] == "cards"), str(path), *words[1:] * (words[0] == "size")
            )
            assert free_of_control(ran.out + ran.err), (key, words, ran)


def test_mistakes_are_capped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake is explained beside the others: to explain all of many took hours."""
    asked: list[str] = []

    def near(word: str, candidates: Iterable[str]) -> str | None:
        asked.append(word)
        return did_you_mean(word, candidates)

    monkeypatch.setattr("kvplan.files.yaml.validation.did_you_mean", near)
    path = tmp_path / "plan.yaml"
    for count in (100, MAX_KEYS - 10):
        asked.clear()
        path.write_text(PLAN + "".join(f"k{at}: 1\n" for at in range(count)))
        ran = run("check", str(path), "--json")
        assert ran.code == 2
        assert f"{count - MAX_MISTAKES:,} more mistakes" in ran.out
        assert len(asked) <= MAX_MISTAKES
    path.write_text(PLAN + "".join(f"k{at}: 1\n" for at in range(MAX_KEYS + 10)))
    assert "more than 10,000 keys" in run("check", str(path)).out


def test_a_question_that_was_not_judged(run: Run, tmp_path: Path) -> None:
    """No weights, no pool: whether the requests fit is not known, and that is no yes."""
    raw = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "vocab_size": 100,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "num_hidden_layers": 1,
        "max_position_embeddings": 4096, "quantization_config": {"quant_method": "never-heard-of"},
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw))
    one = ["size", str(path), "--gpu", "h100"]
    for asked in ([], ["-n", "100000"], ["--tokens", "100"], ["--tokens", "100,200"], ["-n", "9", "--json"]):
        ran = run(*one, *asked)
        assert ran.code == 2, ran
    assert run(*one, "-n", "9", "--weights", "1GiB").code == 0
    assert run("size", str(path), "-n", "9").code == 0


def test_folders_are_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    (tmp_path / "a" / "evidence").mkdir(parents=True)
    (tmp_path / "a" / "evidence" / "x.json").write_text("{}")
    (tmp_path / "a" / ".git").mkdir()
    (tmp_path / "a" / ".git" / "y.json").write_text("{}")
    if os.name != "nt":
        (tmp_path / "a" / "again").symlink_to(tmp_path)
        (tmp_path / "a" / "gone.json").symlink_to(tmp_path / "nothing")
        (tmp_path / "a" / "self.json").symlink_to(tmp_path / "a" / "self.json")
    assert [path.name for path in files_below(tmp_path, (".json",))] == ["x.json"]
    assert MAX_FILES == 100_000
    monkeypatch.setattr("kvplan.files.folders.MAX_FILES", 3)
    ran = run("list", "receipts", str(tmp_path))
    assert (ran.code, "too-many-files" in ran.err) == (2, True)
    assert run("check", str(tmp_path)).code == 2


def test_a_receipt_that_goes_away_is_passed_over(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone.json"
    monkeypatch.setattr("kvplan.cli.listing.files_below", lambda *_: iter([gone]))
    ran = run("list", "receipts", str(tmp_path))
    assert (ran.code, "no-receipts" in ran.err) == (2, True)


def test_llamacpp_takes_no_config_for_a_gguf(run: Run, tmp_path: Path) -> None:
    """A config.json without architectures was taken for a GGUF file: it is one that a build is made of."""
    raw = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
           "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 100}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw))
    ran = run("size", str(path), "--engine", "llamacpp", "-g", "h100")
    assert ran.code in (0, 2), ran
    assert "as q4_k_m: no build was named" in ran.out + ran.err
