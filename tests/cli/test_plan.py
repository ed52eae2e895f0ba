"""``kvplan plan``: traces of any columns, files elsewhere, rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kvplan
from kvplan.cli import main
from kvplan.planning.options import other_checkpoint
from tests.cli.conftest import Run

TRACE = "prompt_tokens,completion_tokens\n100,20\n3000,50\n3000,20\n"


def test_a_trace_of_any_columns_is_planned_written_and_checked(run: Run, tmp_path: Path) -> None:
    """The plan lies in another folder than the trace: its path is meant from there."""
    trace, file = tmp_path / "load.csv", tmp_path / "plans" / "chat.yaml"
    trace.write_text(TRACE, encoding="utf-8")
    file.parent.mkdir()
    asked = ("plan", "llama-3.1-8b", "-n", "10", "--gpu", "h100", "--workload", str(trace))
    assert "is none of the traces" in " ".join(run(*asked).err.split())
    named = (*asked, "--trace-columns", "prompt_tokens,completion_tokens", "--write", str(file))
    assert run(*named).code == 0
    assert "trace_columns: {input: prompt_tokens, output: completion_tokens}" in file.read_text("utf-8")
    assert run("check", str(file)).code == 0
    again = run("plan", "llama-3.1-8b", "-n", "10", "--gpu", "h100", "--workload", str(file), "--json")
    assert again.code == 0
    assert "is no" not in again.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--arrival", "3"), "bad-rate"),
        (("--arrival", "0/s"), "bad-rate"),
        (("--arrival", "3/s"), "bad-usage"),
        (("--trace-columns", "one"), "bad-usage"),
        (("--shared-prefix", "8k"), "bad-setting"),
        (("--host-memory", "256"), "bad-size"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Run, words: tuple[str, ...], code: str) -> None:
    ran = run("plan", "llama-3.1-8b", "-t", "4k", "--gpu", "h100", *words)
    assert ran.code == 2
    assert f"error[{code}]" in ran.err


def test_arrivals_a_minute_are_arrivals_a_second(run: Run) -> None:
    asked = ("plan", "llama-3.1-8b", "-t", "4k", "--gpu", "h100", "--ttft", "2s", "--tpot", "50ms")
    assert "60 requests" not in run(*asked).out
    a_minute, a_second = run(*asked, "--arrival", "120/min"), run(*asked, "--arrival", "2/s")
    assert a_minute.code == a_second.code == 0
    assert a_minute.out.splitlines()[0] == a_second.out.splitlines()[0]


def test_cost_without_prices_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen3-0.6b", "-t", "8k", "--gpu", "h100", "--objective", "cost"]) == 2
    shown = capsys.readouterr()
    assert "no-prices" in shown.err
    assert "--prices" in shown.err
    assert not shown.out


def test_several_engines_stand_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt-oss-20b", "-n", "8", "-t", "8k", "--gpu", "h100,l40s", "--json"]
    assert main([*words, "--engine", "vllm,sglang"]) == 0
    both = json.loads(capsys.readouterr().out)
    rows = {(one["engine"].partition("@")[0], one["gpu"]): one for one in both["options"]}
    assert len(rows) == 4
    for name in ("vllm", "sglang"):
        assert main([*words, "--engine", name]) == 0
        for option in json.loads(capsys.readouterr().out)["options"]:
            assert rows[name, option["gpu"]] == option
    assert main([*words, "--engine", "all"]) == 0
    every = json.loads(capsys.readouterr().out)
    told = [(one["engine"].partition("@")[0], one["gpu"]) for one in every["options"] + every["unserved"]]
    engines = ("vllm", "sglang", "trtllm", "llamacpp", "tgi", "mlx")
    gpus = ("h100-sxm-80gb", "l40s-48gb")
    assert sorted(told) == sorted((engine, gpu) for engine in engines for gpu in gpus)
    assert main([*words, "--engine", "generic,vllm"]) == 2


def test_a_plan_file_says_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["plan", "qwen3-0.6b", "-n", "1", "-t", "8k", "--gpu", "h100", "--block-size", "32"]
    assert main([*words, "--write", "plans/chat.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "wrote:  plans/chat.yaml\n  next:   kvplan check plans/chat.yaml" in shown
    text = Path("plans/chat.yaml").read_text(encoding="utf-8")
    head = " ".join(row.removeprefix("# ") for row in text.splitlines() if row.startswith("#"))
    assert "for 1 request," in head
    assert "check it: kvplan check plans/chat.yaml" in head
    assert "kvplan plan qwen3-0.6b -n 1 -t 8k -g h100 --block-size 32" in head
    assert "pool: safe" in text
    assert main([*words, "--write", "plans/chat.yaml"]) == 2
    Path("plans/chat.yaml").write_text("old", encoding="utf-8")
    assert main([*words, "--write", "plans/chat.yaml", "--overwrite"]) == 0
    assert Path("plans/chat.yaml").read_text(encoding="utf-8") == text
    assert main([*words, "--overwrite"]) == 2


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"),
        ("Qwen/Qwen3-32B", "nvidia/Qwen3-32B-NVFP4"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
    ],
)
def test_another_checkpoint_is_said_to_be_one(asked: str, taken: str) -> None:
    text = other_checkpoint(asked, kvplan.load_model(taken))
    assert text == ("" if asked == taken else f"{taken} is another checkpoint of {asked}")


def test_another_checkpoint_is_named_in_headline_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "llama-3.1-8b-instruct", "-n", "90", "-t", "8k", "-e", "trtllm", "--gpu", "h100"]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    taken = "nvidia/Llama-3.1-8B-Instruct-FP8"
    assert "fp8*" in shown
    assert f"* {taken} is another checkpoint of meta-llama/Llama-3.1-8B-Instruct" in shown
    assert main([*words, "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert shown.partition(":")[0] == options[0]["model"].rpartition("/")[2]
    assert any(one["model"] == taken for one in options)


def test_an_engine_that_is_larger_than_a_node_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "llama-3.3-70b", "-n", "8", "-t", "16k", "--gpu", "rtx-3090"]
    assert main(words) == 0
    assert "each engine runs over 2 nodes: 4 GPUs in each" in capsys.readouterr().out
    assert main(["plan", "qwen3-32b", "-n", "64", "-t", "32k", "--gpu", "h100"]) == 0
    assert "nodes" not in capsys.readouterr().out


@pytest.mark.parametrize("pool", ["safe", "likely"])
def test_serves_is_said_only_of_what_the_safe_pool_holds(
    pool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "qwen3-32b", "-n", "1", "-t", "39k", "--gpu", "a100-pcie-80gb", "--pool", pool]
    assert main(words) in (0, 1)
    shown = " ".join(capsys.readouterr().out.split())
    assert main([*words, "--json"]) in (0, 1)
    best = json.loads(capsys.readouterr().out)["best"]
    head = shown.partition(" GPUs kind ")[0]
    if best["safe_requests"]:
        assert "serves" in head
    else:
        assert "may not start: 1 likely, 0 safe" in head
        assert "serves" not in head
    assert (pool == "safe") == (best["safe_requests"] > 0)


def test_the_split_behind_the_speed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "qwen3-0.6b", "-n", "1", "-t", "8k", "--gpu", "h100"]) == 0
    assert "prompts of 7,168 and answers of 1,024 tokens" in " ".join(capsys.readouterr().out.split())


def test_size_says_both_where_they_disagree_about_starting(run: Run) -> None:
    words = ["llama-3.3-70b", "--gpu", "2xh100", "-t", "4k", "--max-model-len", "12k"]
    head = run("size", *words).out.splitlines()[:3]
    assert "safely none: it may not start." in " ".join(head)
    assert "may not start" not in run("size", "qwen3-32b", "--gpu", "h200", "-t", "8k").out
