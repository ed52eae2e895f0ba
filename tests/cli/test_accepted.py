"""What one command refuses, every command refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

MODEL = "qwen3-8b"


@pytest.mark.parametrize(
    ("engine", "gpu", "flag"),
    [
        ("vllm@0.31", "h100", "max_model_len"),
        ("sglang", "h100", "context_length"),
        ("trtllm", "h200", "max_seq_len"),
    ],
)
def test_every_command_refuses_nvfp4_on_hopper(
    run: Run, tmp_path: Path, engine: str, gpu: str, flag: str
) -> None:
    """size, plan, --show formats, check and export."""
    words = (MODEL, "-e", engine, "--gpu", gpu, "--tokens", "4k")
    assert run("size", *words, "--kv-cache-dtype", "nvfp4").code in (1, 2)
    rows = json.loads(run("size", *words, "--show", "formats", "--json").out)["results"]
    found = {row["settings"]["kv_cache_dtype"]: row for row in rows}
    assert found["nvfp4"].get("refusal") or found["nvfp4"].get("error")
    planned = run("plan", *words, "--kv-cache-dtype", "nvfp4")
    assert planned.code in (1, 2)
    path = tmp_path / "plan.yaml"
    path.write_text(
        f"kvplan: plan/v1\nmodel: {MODEL}\nengine: {engine}\ngpu: {gpu}\n"
        f"serve: {{kv_cache_dtype: nvfp4, {flag}: 4096}}\n",
        encoding="utf-8",
    )
    checked = run("check", str(path))
    assert checked.code == 1
    assert "nvfp4" in checked.out
    exported = run("export", str(path))
    assert exported.code in (1, 2)
    assert "nvfp4" in exported.err
    assert not exported.out


REFUSED = [
    ("--tp", "3"),
    ("--kv-cache-dtype", "nvfp4", "-e", "vllm@0.20"),
    ("--pp", "37"),
    ("-e", "trtllm", "--pp", "37"),
    ("-e", "sglang", "--pp", "37", "--gpu", "64xh100"),
]


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
@pytest.mark.parametrize("command", ["size", "explain"])
def test_a_refusal_has_no_figures(run: Run, command: str, options: tuple[str, ...]) -> None:
    """Neither a table of zeros on the screen nor zeros in the JSON."""
    shown = run(command, MODEL, "-t", "4k", *options)
    assert "would not serve" in shown.out
    assert "one request" not in shown.out.replace("one request of", "")
    dumped = json.loads(run(command, MODEL, "-t", "4k", *options, "--json").out)
    assert dumped["refusal"]
    assert dumped["per_gpu"] is None
    assert dumped["total"] is None


def test_a_grid_names_what_is_refused(run: Run) -> None:
    shown = run("size", MODEL, "-t", "4k,8k", "-n", "1,2", "--tp", "3")
    assert "refused" in shown.out
    assert " 0.00" not in shown.out


def test_a_refusal_for_memory_keeps_its_figures(run: Run) -> None:
    dumped = json.loads(run("size", MODEL, "--kv-cache-memory", "1GiB", "--json").out)
    assert dumped["refusal"]
    assert dumped["per_gpu"]["kv_bytes_per_request"] > 0
