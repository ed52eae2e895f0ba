"""Start-ups as rows from receipts of an engine's own run: those of examples/evidence are among the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.files.plans.receipts import read_receipt
from scripts.receipt_rows import main, row_of

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "examples" / "evidence"
FIGURES = (
    "available_kv_gib", "cudagraph_estimated_gib", "consumed_gib", "activation_peak_gib", "total_gpu_gib",
)  # fmt: skip
ROWS: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests/data/measured.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("chat-llama-3.1-8b-h100-vllm", "h100-033-l31-8b-s256"),
        ("rag-llama-3.1-8b-128k-h200-vllm", "h200-033-l31-8b-s16"),
    ],
)
def test_a_receipt_is_a_row(name: str, row: str) -> None:
    """The measured figures are equal; what a receipt does not tell was said by hand."""
    (kept,) = (one for one in ROWS if one["id"] == row)
    made = row_of(read_receipt(EVIDENCE / f"{name}.json").receipt, row)
    assert made.keys() <= kept.keys()
    for key in ("engine_version", "model", "tp"):
        assert made[key] == kept[key]
    assert made["first"][:2] == kept["first"][:2]  # the high end once allowed for another sampler
    for key in FIGURES:
        assert made[key] == pytest.approx(kept[key], abs=2e-5), key
    for key in ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "enforce_eager"):
        assert made["flags"][key] == kept["flags"][key]


def test_it_prints_rows_that_are_read_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EVIDENCE / "chat-llama-3.1-8b-h100-vllm.json"
    monkeypatch.setattr("sys.argv", ["receipt_rows", str(path)])
    assert main() == 0
    (row,) = yaml.safe_load(capsys.readouterr().out)
    assert row == row_of(read_receipt(path).receipt, path.stem)


def test_kvplan_s_own_run_is_no_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["receipt_rows", str(EVIDENCE / "chat-llama-3.1-8b-h100.json")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "no engine measured the pool" in capsys.readouterr().err
