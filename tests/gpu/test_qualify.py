"""The qualification: its small form on the CPU here, the whole on a GPU where there is one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.plans.receipt import PROOF, Figure, Receipt
from kvplan.proof.validate.rank_run import WORKING
from kvplan.units import GIB, MIB
from tests.gpu.room import beside_of, pool_of
from tests.gpu.table import Read, reasons, remarks, row_of
from tests.proof.fake_engine import interpreter
from tests.proof.test_engine_run import CONFIG, MEASURED

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
    assert "2 receipts, none refuted" in done.stdout
    assert tarfile.is_tarfile(tmp_path.with_suffix(".tgz"))
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


def _read(receipt: Receipt, *, intact: bool = True) -> Read:
    return Read("r.json", receipt, intact)


def test_edited_and_refuted_receipts_are_not_enough() -> None:
    assert reasons(_read(_receipt(gather=800))) == []
    assert reasons(_read(_receipt(gather=800), intact=False)) == ["org/m: the receipt was edited"]
    refuted = replace(_receipt(gather=900), verdict="refuted", figures=(Figure("a", "count", 0, 1, 0),))
    assert reasons(_read(refuted)) == ["org/m: refuted a"]
    stopped = replace(_receipt(gather=900), verdict="stopped", stopped_at="pool")
    assert reasons(_read(stopped)) == ["org/m: stopped at pool"]
    assert reasons(Read("x.json", None, problem="x.json is empty")) == ["x.json: x.json is empty"]


def test_slow_blocks_and_kernels_that_did_not_run_are_remarks() -> None:
    slow = _receipt(gather=799)
    assert reasons(_read(slow)) == []
    assert remarks(_read(slow)) == ["org/m: gather of blocks at 79 % of the copy"]
    check = {"kernel": "flex_attention", "kind": "GQA", "note": "not run: RuntimeError"}
    assert remarks(_read(replace(_receipt(gather=800), attention=(check,)))) == [
        "org/m: flex_attention (GQA) not run: RuntimeError"
    ]


def test_the_table_needs_nothing_beside_kvplan(tmp_path: Path) -> None:
    """A machine without pydantic: receipts, answers of --json and files that are none."""
    good = _receipt(gather=900).model_dump()
    (tmp_path / "a.json").write_text(json.dumps(good), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"receipt": good, "path": None}), encoding="utf-8")
    code = "import sys; sys.modules['pydantic'] = None; from tests.gpu.table import main; main([sys.argv[1]])"
    for wanted in ("2 receipts, all confirmed", "c.json: c.json is not a receipt: KeyError 'model'"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert wanted in done.stdout, done.stdout + done.stderr
        (tmp_path / "c.json").write_text("{}", encoding="utf-8")


def test_the_pool_is_what_the_probes_leave() -> None:
    """Nine tenths of a large card; on a small one what is free beside the probe and the reserve."""
    large = 150_109_945_856
    assert pool_of(large, large - GIB, 2 * GIB) == large * 9 // 10 // MIB * MIB
    small = 24 * GIB
    free = small - GIB
    pool = pool_of(small, free, 5 * GIB)
    assert pool == 17 * GIB
    assert pool + 5 * GIB + GIB <= free
    assert pool_of(8 * GIB, 5 * GIB, 6 * GIB) == 0


def test_what_lies_beside_the_pool_is_the_dry_runs() -> None:
    """Weights, and the buffers of reading back."""
    assert beside_of(["gemma-3-4b", "--weights", "64MiB"]) == 64 * MIB + WORKING


def test_a_plan_is_rehearsed_with_the_models(tmp_path: Path) -> None:
    done = _qualify(
        tmp_path, QUALIFY_DEVICE="cpu", QUALIFY_MODELS="",
        QUALIFY_PLANS="examples/plans/rag-llama-3.1-8b-128k-h200.yaml",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 receipts, none refuted" in done.stdout


def test_the_engine_measures_the_plans_where_it_is_there(tmp_path: Path) -> None:
    """Its receipts stand beside kvplan's own, in the same table; an engine that is not there is left out."""
    model, folder = tmp_path / "model", tmp_path / "receipts"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    plan = tmp_path / "tiny.yaml"
    plan.write_text(
        f"kvplan: plan/v1\nname: tiny\nmodel: {model}\nengine: vllm@0.32\ngpu: h200\n"
        "serve: {max_model_len: 2048, kv_cache_memory_bytes: 16MiB}\nrequire: {requests: 1, tokens: 1000}\n",
        encoding="utf-8",
    )
    how = {
        "QUALIFY_DEVICE": "cpu",
        "QUALIFY_MODELS": "",
        "QUALIFY_PLANS": str(plan),
        "QUALIFY_ENGINE": "vllm",
    }
    done = _qualify(folder, **how, QUALIFY_ENGINE_PYTHON=str(interpreter(tmp_path, MEASURED)))
    assert "tiny-vllm-cpu.json" in [path.name for path in folder.glob("*.json")], done.stdout
    receipt = json.loads((folder / "tiny-vllm-cpu.json").read_text())
    assert receipt["engine_run"]["version"] == "0.32.0"
    done = _qualify(tmp_path / "none", **how, QUALIFY_ENGINE_PYTHON=str(tmp_path / "no-python"))
    assert "tiny-vllm: left out, error[no-engine]" in done.stdout
    assert done.returncode == 0, done.stdout


def test_what_is_measured_is_packed_where_the_script_is_stopped(tmp_path: Path) -> None:
    """SIGTERM in the second run: the receipt of the first one is in the archive."""
    pytest.importorskip("torch", reason="torch is not installed")
    folder = tmp_path / "receipts"
    process = subprocess.Popen(
        ["bash", str(SCRIPT), str(folder)],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "QUALIFY_DEVICE": "cpu",
             "QUALIFY_MODELS": "falcon-7b llama-2-7b gemma-3-27b llama-3.1-8b", "QUALIFY_POOL": "32MiB"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    first, archive = folder / "falcon-7b-cpu.json", folder.with_suffix(".tgz")
    for _ in range(1200):
        if first.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    with tarfile.open(archive) as packed:
        assert "receipts/falcon-7b-cpu.json" in packed.getnames()


BEYOND = "typer rich click transformers huggingface_hub requests httpx psutil hypothesis tqdm".split()
"""What a rented machine with torch, numpy, PyYAML, pydantic and nvidia-ml-py may lack."""


def test_validate_needs_no_package_that_a_bare_machine_lacks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    code = (
        "import sys\n"
        f"for name in {BEYOND!r}: sys.modules[name] = None\n"
        "from kvplan.cli import main\n"
        "raise SystemExit(main(sys.argv[1:]))"
    )
    plan = "examples/plans/rag-llama-3.1-8b-128k-h200.yaml"
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", plan, "--device", "cpu", "--kv-cache-memory", "32MiB",
         "--output", str(tmp_path / "r.json")],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "r.json").exists()


def test_a_row_says_by_how_much() -> None:
    figures = (
        Figure("pool_bytes", "bytes", 1000, 1000),
        Figure("pool_allocated_bytes", "bytes", 1000, 1024),
        Figure("pool_reserved_bytes", "bytes", 2048, 2048),
        Figure("device_runtime_bytes", "bytes", 10_000, 10_010),
        Figure("requests", "requests", 7, 6),
    )
    receipt = replace(_receipt(gather=850), figures=(*figures, *_receipt(gather=850).figures))
    cells = ("m", "auto", "confirmed", "1,000", "+24", "0", "+0.100 %", "6 of 7", "0 of 0", "85 %", "90 %")
    assert row_of(receipt) == cells
