"""The command line of a validation, run in this process."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_gpu
from kvplan.cli import main
from kvplan.files.plans.receipts import read_receipt
from tests.proof.fake_cuda import FakeCuda, fake_cuda

__all__ = ["fake_cuda"]
POOL = ("--kv-cache-memory", "32MiB")
PLAN = """\
kvplan: plan/v1
name: chat
model: deepseek-v2-lite
engine: vllm@0.32
gpu: h200
serve: {max_model_len: 8192}
require: {requests: 2, tokens: 4096}
"""


def _plan(folder: Path) -> Path:
    path = folder / "chat.yaml"
    path.write_text(PLAN, encoding="utf-8")
    return path


def test_a_rehearsal_is_called_one_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    plan = _plan(tmp_path)
    assert main(["validate", str(plan), "--device", "cpu", *POOL]) == 3
    out = capsys.readouterr().out
    assert out.startswith("Rehearsal on host memory: layout and arithmetic hold for chat")
    assert "never the capacity of a GPU" in out
    assert "This plan asks for a proof on its GPU (exit 3)." in " ".join(out.split())
    assert max(len(row) for row in out.splitlines() if "receipt:" not in row) <= 80  # paths are as they are
    receipt = json.loads((tmp_path / "evidence" / "chat-rehearsal.json").read_text(encoding="utf-8"))
    assert (receipt["kind"], receipt["verdict"]) == ("rehearsal", "self-consistent")


def test_json_is_the_receipt(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL, "--json"]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert data["receipt"]["kvplan"] == "receipt/v2"
    assert data["path"] is None
    assert captured.err == ""


def test_a_wrong_byte_refutes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from dataclasses import replace

    from kvplan.proof.validate.fill import Mismatch
    from kvplan.proof.validate.workload_test import workload_test

    wrong = Mismatch(1, 2, 3, 4, "k", 5, 6, 7, 8)

    def spoiled(*words: Any, **how: Any) -> Any:
        return replace(workload_test(*words, **how), states_wrong=1, mismatches=(wrong,))

    monkeypatch.setattr("kvplan.proof.validate.rank_run.workload_test", spoiled)
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Rehearsal on host memory: refuted, 1 figure differs and 1 finding")
    assert "states read back wrong !" in out
    assert "request 1, layer 2, head 3, position 4, k: block 5" in " ".join(out.split())


def test_without_torch_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL]) == 3
    assert capsys.readouterr().err == (
        "error[missing-extra]: validating needs torch, which is not installed\n"
        "help: pip install 'kvplan[gpu]'\n"
    )


def test_the_time_limit_stops_without_a_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    output = tmp_path / "r.json"
    words = ["validate", "falcon-7b", "--device", "cpu", *POOL, "--time-limit", "0s", "--output", str(output)]
    assert main(words) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Stopped in the stage `probe` by --time-limit: nothing is proved of")
    receipt = read_receipt(output)
    assert receipt.intact
    assert (receipt.receipt.verdict, receipt.receipt.stopped_at) == ("stopped", "probe")
    assert receipt.receipt.stopped_by == "time"


def test_a_stopped_run_takes_no_proofs_place(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    words = ["validate", str(_plan(tmp_path)), "--device", "cpu", *POOL]
    assert main([*words, "--time-limit", "0s"]) == 3
    assert [one.name for one in (tmp_path / "evidence").iterdir()] == ["chat-rehearsal-stopped.json"]


def test_what_was_measured_before_the_time_was_up_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from kvplan.proof.validate.stages.base import StageStopped

    def stopped(*_: object, **__: object) -> None:
        raise StageStopped("cache in use")

    monkeypatch.setattr("kvplan.proof.validate.rank_run.workload_test", stopped)
    output = tmp_path / "r.json"
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL, "--output", str(output)]) == 3
    receipt = read_receipt(output).receipt
    assert receipt.verdict == "stopped"
    assert {"pool_bytes", "pool_allocated_bytes"} <= {figure.name for figure in receipt.figures}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["falcon-7b", "--device", "tpu"], "--device tpu"),
        (["falcon-7b", "--device", "cpu", "--gpu", "0"], "cannot both hold"),
        (["falcon-7b", "--device", "cpu", "--time-limit", "soon"], "'soon' is not a time"),
        (["falcon-7b", "--device", "cpu", "--reserve", "1G"], "1GiB"),
        (["falcon-7b", "--tokens", "1k,2k"], "validate takes one tokens, not 2"),
        (["falcon-7b", "--gpu", "h200"], "and --gpu says which"),
    ],
)
def test_what_cannot_be_asked(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_says_its_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(_plan(tmp_path)), "--device", "cpu", "--tp", "2"]) == 2
    assert "--tensor-parallel-size belongs to a model" in capsys.readouterr().err


def test_one_plan_of_a_file_is_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(f"{PLAN}---\n{PLAN.replace('chat', 'batch')}", encoding="utf-8")
    assert main(["validate", str(path), "--device", "cpu", "--dry-run"]) == 2
    assert "--plan chat: one of chat, batch" in capsys.readouterr().err
    assert main(["validate", str(path), "--device", "cpu", "--dry-run", "--plan", "batch"]) == 0
    assert " batch in host memory" in " ".join(capsys.readouterr().out.split())


def test_the_limit_of_a_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL, "--find-limit", "--json"]) == 0
    figures = {one["name"]: one for one in json.loads(capsys.readouterr().out)["receipt"]["figures"]}
    limit = figures["limit_pool_bytes"]
    assert limit["predicted"] is None
    assert figures["out_of_memory_margin_bytes"]["measured"] == 128 * 2**20
    assert figures["limit_requests"]["measured"] >= figures["requests"]["measured"]


def test_requests_that_do_not_fit_refute(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    words = ["validate", "falcon-7b", "--device", "cpu", *POOL, "--tokens", "512", "--requests", "9"]
    assert main([*words, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in data["findings"]] == ["too-few-requests"]


def test_host_memory_that_runs_out_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine had less than it said: nothing is refuted, nothing is proved."""
    pytest.importorskip("torch", reason="torch is not installed")

    def none(*_: object, **__: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you ..."
        )

    monkeypatch.setattr("kvplan.proof.validate.stages.pool.allocate", none)
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL]) == 3
    assert "error[no-room]: host memory ran out in the stage `pool`" in capsys.readouterr().err


def test_an_unknown_failure_is_a_bug_and_not_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("kvplan.proof.validate.stages.pool.allocate", broken)
    assert main(["validate", "falcon-7b", "--device", "cpu", *POOL]) == 70
    assert "something else" in capsys.readouterr().err


def test_the_spec_of_a_device_has_its_own_total_and_capability() -> None:
    from kvplan.cli.validate_target import _spec_of
    from kvplan.proof.validate.probe import Hardware

    listed, measured = _spec_of(Hardware("NVIDIA H200", "cuda", runtime_total=150_000_000_000))
    assert listed == load_gpu("h200")
    assert measured == replace(listed, memory_total_bytes=150_000_000_000)
    none, other = _spec_of(Hardware("NVIDIA B999", "cuda", runtime_total=2**37, compute_capability=(10, 0)))
    assert none is None
    assert other is not None
    assert (other.arch, other.memory_total_bytes, other.compute_capability) == ("unlisted", 2**37, (10, 0))
    assert _spec_of(Hardware("x86_64", "cpu", runtime_total=2**34)) == (None, None)
    assert _spec_of(None) == (None, None)


def test_a_bare_models_total_is_held_against_the_spec_file(
    fake_cuda: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slice of the GPU: the budget stands on what is there, the comparison on what the file says."""
    fake_cuda.name, fake_cuda.total = "NVIDIA H200", 8 * 2**30
    words = ["validate", "falcon-7b", *POOL, "--weights", "0B", "--max-num-batched-tokens", "32"]
    main([*words, "--max-num-seqs", "4", "--tokens", "64", "--json"])
    data = json.loads(capsys.readouterr().out)
    figure = next(one for one in data["receipt"]["figures"] if one["name"] == "runtime_total_bytes")
    assert figure["predicted"] == load_gpu("h200").memory_total_bytes
    assert figure["measured"] == 8 * 2**30
    assert "other-memory" in {one["code"] for one in data["findings"]}


def test_a_pool_that_holds_no_request_proves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["minimax-text-01", "-e", "vllm@0.23", "--kv-cache-memory", "512MiB", "--device", "cpu"]
    assert main(["validate", *words]) == 2
    assert "error[holds-nothing]: a pool of 0.50 GiB holds no request" in capsys.readouterr().err


@pytest.mark.parametrize("tokens", ["1000", "1025", "2048"])
def test_tgi_keeps_one_token_less_than_a_request_has(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["qwen2.5-0.5b", "-e", "tgi", "-t", tokens, "--kv-cache-memory", "64MiB", "--device", "cpu"]
    assert main(["validate", *words]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("option", [["--serve"], ["--layers", "4"], ["--engine-python", "/bin/false"]])
def test_options_of_an_engine_s_run_are_not_dropped(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "qwen3-0.6b", "--device", "cpu", *option]) == 2
    assert f"{option[0]} is for an engine's own run" in capsys.readouterr().err
