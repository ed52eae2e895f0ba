"""``kvplan validate --with vllm`` on a real vLLM on the CPU: every figure equal (make live)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cli import main
from kvplan.files.plans.receipts import read_receipt
from tests.live.tiny import MODELS, vllm_python, write_model

pytestmark = pytest.mark.vllm
DECIDING = {
    "engine_pool_bytes", "engine_blocks_in_its_pool", "engine_num_blocks", "engine_groups",
    "engine_groups_that_differ", "engine_cache_bytes", "engine_weights_bytes", "engine_requests",
    "engine_requests_at_full_length",
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
