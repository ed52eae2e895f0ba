"""The qualification: its small form on the CPU here, the whole on a GPU where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.plans.receipt import PROOF, Figure, Receipt
from tests.gpu.table import reasons, row_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "qualify.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")


def _qualify(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), str(folder)],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_the_small_form_rehearses_and_prints_a_table(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = _qualify(
        tmp_path, QUALIFY_DEVICE="cpu", QUALIFY_MODELS="falcon-7b deepseek-v2-lite:fp8", QUALIFY_POOL="32MiB"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 receipts, all confirmed" in done.stdout
    names = sorted(path.name for path in tmp_path.glob("*.json"))
    assert names == ["deepseek-v2-lite-fp8-cpu.json", "falcon-7b-cpu.json"]


def test_a_model_that_fails_is_said(tmp_path: Path) -> None:
    done = _qualify(tmp_path, QUALIFY_DEVICE="cpu", QUALIFY_MODELS="no-such-model")
    assert done.returncode == 1
    assert "no-such-model: exit 2" in done.stdout


@pytest.mark.gpu
def test_the_whole_on_a_gpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    done = _qualify(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _receipt(*, gather: int) -> Receipt:
    figures = tuple(
        Figure(f"{name}_bytes_per_second", "bytes_per_second", None, speed)
        for name, speed in (("copy", 1000), ("gather", gather), ("write", 900))
    )
    digest = "sha256:" + "0" * 64
    return Receipt(
        digest, "p", "org/m", digest, "vllm", "0.33", "1", PROOF, "2026-01-01T00:00:00Z", figures=figures
    )


def test_slow_blocks_and_edited_receipts_are_not_enough() -> None:
    assert reasons(_receipt(gather=800), intact=True) == []
    assert reasons(_receipt(gather=799), intact=True) == [
        "org/m: gather at 79 % of the copy, 80 % are asked for"
    ]
    assert reasons(_receipt(gather=800), intact=False) == ["org/m: the receipt was edited"]
    refuted = replace(_receipt(gather=900), verdict="refuted", figures=())
    assert reasons(refuted, intact=True)[0] == "org/m: refuted"


def test_a_row_says_by_how_much() -> None:
    figures = (
        Figure("pool_bytes", "bytes", 1000, 1000),
        Figure("pool_allocated_bytes", "bytes", 1000, 1024),
        Figure("pool_reserved_bytes", "bytes", 2048, 2048),
        Figure("device_runtime_bytes", "bytes", 10_000, 10_010),
        Figure("requests", "requests", 7, 6),
    )
    receipt = replace(_receipt(gather=850), figures=(*figures, *_receipt(gather=850).figures))
    cells = ("m", "auto", "confirmed", "1,000", "+24", "0", "+0.100 %", "6 of 7", "85 %", "90 %")
    assert row_of(receipt) == cells
