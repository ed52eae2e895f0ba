"""Peak host memory of a rehearsal: the pool and at most 300 MB above a process that has imported torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = 300 * 1000**2
_CODE = """
import torch, sys
from kvplan.proof.validate import host
before = host.resident_bytes()
from kvplan.cli import main
code = main(sys.argv[1:])
print(code, host.peak_resident_bytes() - before, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("model", "pool"), [("llama-3.1-8b", 256), ("gpt-oss-20b", 64), ("deepseek-v2-lite", 512)]
)
def test_the_pool_and_little_more(model: str, pool: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    done = subprocess.run(
        [sys.executable, "-c", _CODE, "validate", model, "--device", "cpu", "--kv-cache-memory",
         f"{pool}MiB", "--reserve", "0B", "--json"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    code, above = (int(word) for word in done.stderr.split()[-2:])
    assert code == 0, done.stderr
    assert above <= pool * 1024**2 + ALLOWED
