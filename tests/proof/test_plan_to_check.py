"""From a plan over a (faked) GPU to a receipt, and from there to ``kvplan check``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.api import load_gpu
from kvplan.cli import main
from tests.proof.fake_cuda import FakeCuda, fake_cuda

__all__ = ["fake_cuda"]
PLAN = """\
kvplan: plan/v1
name: chat
model: deepseek-v2-lite
engine: vllm@0.32
gpu: h200
weights: 64MiB
serve:
  kv_cache_memory_bytes: 67108864
  max_model_len: 1024
  max_num_batched_tokens: 64
  max_num_seqs: 8
require: {requests: 2, tokens: 512}
evidence: evidence/chat-h200-sxm-141gb.json
"""


def _proved(folder: Path, cuda: FakeCuda) -> Path:
    spec = load_gpu("h200")
    assert spec.memory_total_bytes is not None
    cuda.name, cuda.total = spec.nvml_names[0], spec.memory_total_bytes
    plan = folder / "chat.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    assert main(["validate", str(plan)]) == 0
    return plan


def _checked(plan: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["check", str(plan)])
    return code, capsys.readouterr().out


def test_a_receipt_is_evidence_of_its_plan(
    tmp_path: Path, fake_cuda: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _proved(tmp_path, fake_cuda)
    out = capsys.readouterr().out
    assert out.startswith("Validation on NVIDIA H200: the memory is there for chat")
    code, said = _checked(plan, capsys)
    assert code == 0, said

    receipt = tmp_path / "evidence" / "chat-h200-sxm-141gb.json"
    whole = receipt.read_text(encoding="utf-8")
    data = json.loads(whole)
    data["figures"][-1]["measured"] = 12345
    receipt.write_text(json.dumps(data), encoding="utf-8")
    code, said = _checked(plan, capsys)
    assert code == 1
    assert "evidence-edited" in said

    receipt.write_text(whole, encoding="utf-8")
    plan.write_text(PLAN.replace("max_num_seqs: 8", "max_num_seqs: 9"), encoding="utf-8")
    code, said = _checked(plan, capsys)
    assert code == 1
    assert "evidence-of-another-plan" in said


def test_another_gpu_proves_nothing(
    tmp_path: Path, fake_cuda: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_cuda.name = load_gpu("a100-sxm-80gb").nvml_names[0]
    plan = tmp_path / "chat.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    assert main(["validate", str(plan)]) == 3
    assert "error[other-gpu]: the plan is for h200-sxm-141gb" in capsys.readouterr().err
    assert not (tmp_path / "evidence").exists()
