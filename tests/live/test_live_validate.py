"""``kvplan validate --with vllm`` on a real vLLM on the CPU: every figure equal (make live)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.shapes import sized
from tests.live.tiny import MODELS, vllm_python, write_model

pytestmark = pytest.mark.vllm
DECIDING = {
    "engine_pool_bytes", "engine_blocks_in_its_pool", "engine_num_blocks", "engine_groups",
    "engine_groups_that_differ", "engine_windows_that_differ", "engine_cache_bytes", "engine_weights_bytes",
    "engine_requests", "engine_requests_in_its_pool", "engine_requests_at_full_length",
    "engine_extra_request_refused", "engine_blocks_free_again",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more"),
    [(name, ()) for name in MODELS]
    + [("sliding", ("--layers", "4")), ("dense", ("--max-model-len", "1500"))],
)
def test_the_engine_s_own_objects_confirm(name: str, more: tuple[str, ...], tmp_path: Path) -> None:
    write_model(tmp_path, MODELS[name])
    output = tmp_path / "r.json"
    words = ["validate", str(tmp_path), "--with", "vllm", "--device", "cpu"]
    words += ["--kv-cache-memory", "64MiB" if name == "sliding" else "24MiB"]
    words += ["--tokens", "1000", "--engine-python", vllm_python(), "--output", str(output), *more]
    code = main(words)
    receipt = read_receipt(output).receipt
    off = [(one.name, one.predicted, one.measured) for one in receipt.figures if not one.agrees]
    assert (code, off) == (0, []), json.dumps(receipt.model_dump(), indent=1)
    assert receipt.verdict == "confirmed"
    assert set(receipt.confirmed_by) == DECIDING
    weights = next(one for one in receipt.figures if one.name == "engine_weights_bytes")
    assert weights.predicted == weights.measured  # to the byte, though 0.5 % is allowed
    assert receipt.engine_run["version"].startswith("0.32.")


def test_the_engine_s_server_serves_the_plan_s_requests(tmp_path: Path) -> None:
    """All at once, none preempted, and its log says what was predicted."""
    write_model(tmp_path, MODELS["dense"])
    output = tmp_path / "r.json"
    words = ["validate", str(tmp_path), "--with", "vllm", "--serve", "--device", "cpu", "--tokens", "300"]
    words += ["--kv-cache-memory", "8MiB", "--engine-python", vllm_python(), "--output", str(output)]
    assert main(words) == 0
    figures = {one.name: one for one in read_receipt(output).receipt.figures}
    assert (figures["served_requests"].measured, figures["served_preemptions"].measured) == (42, 0)
    assert figures["served_running_peak"].measured == 42  # 3 blocks each, of 127
    assert figures["served_log_lines_that_differ"].evidence == "confirmed"
    assert figures["served_stopped_when_asked"].measured == 1


def test_a_plan_that_is_off_by_one_block_is_refuted_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kvplan's rules are made to find one block more in the same bytes: the engine refutes by that line."""
    write_model(tmp_path, MODELS["dense"])

    def one_more(*words: Any, **named: Any) -> Any:
        own = sized(*words, **named)
        assert own.result.pool is not None
        pool = replace(own.result.pool, num_blocks=own.result.pool.num_blocks + 1)
        return replace(own, result=replace(own.result, pool=pool))

    monkeypatch.setattr("kvplan.proof.validate.installed.judged.sized", one_more)
    words = ["validate", str(tmp_path), "--with", "vllm", "--device", "cpu", "--tokens", "300"]
    assert main([*words, "--kv-cache-memory", "8MiB", "--engine-python", vllm_python(), "-v"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "engine_blocks_in_its_pool: 128 measured, 129 predicted" in out


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
def test_every_rank_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks in processes of the engine's own, which know nothing of kvplan."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    write_model(tmp_path, MODELS["dense"])
    output = tmp_path / "r.json"
    words = ["validate", str(tmp_path), "--with", "vllm", "--device", "cpu", "--tokens", "300", "--tp", "2"]
    words += ["--kv-cache-memory", "8MiB", "--engine-python", vllm_python(), "--output", str(output)]
    assert main(words) == 0
    figures = read_receipt(output).receipt.figures
    assert [one.rank for one in figures if one.name == "engine_cache_bytes"] == [0, 1]
    assert next(one.measured for one in figures if one.name == "engine_num_blocks") == 256
