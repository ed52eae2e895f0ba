"""A real llama.cpp on the CPU: ``kvplan compare`` agrees with the cells and bytes that its log prints.

Runs where llama-cpp-python 0.3.36 is installed: ``make live-llamacpp``, or with KVPLAN_LLAMACPP_PYTHON naming
the interpreter that has it. Weights are random, the files are written here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api import compare
from kvplan.comparison import Comparison, Verdict
from kvplan.errors import KvplanError
from tests.live.tiny_gguf import KEYS, write

pytestmark = pytest.mark.llamacpp
START_SECONDS = 120
# Which rows every log of the architecture has, beside the bytes.
CELLS = {
    "llama": {"kv_tokens"},
    "gemma3": {"kv_tokens", "swa_tokens"},
    "deepseek2": {"kv_tokens"},
    "lfm2": {"kv_tokens"},
}
_LOAD = """\
import json, sys
import llama_cpp
options = json.loads(sys.argv[2])
llama_cpp.Llama(sys.argv[1], verbose=True, n_threads=1, n_gpu_layers=0, **options)
"""
F16, Q8_0, Q4_0 = 1, 8, 2
"""ggml_type."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"n_ctx": 1000}),
    ("llama", {"n_ctx": 4096, "type_k": Q8_0, "type_v": Q4_0, "flash_attn": True}),
    ("llama", {"n_ctx": 4096, "type_k": Q8_0}),
    ("gemma3", {"n_ctx": 8192, "swa_full": False}),
    ("gemma3", {"n_ctx": 8192, "swa_full": True}),
    ("gemma3", {"n_ctx": 600, "swa_full": False}),
    ("gemma3", {"n_ctx": 8192, "swa_full": False, "n_batch": 1024, "n_ubatch": 1024}),
    ("gemma3", {"n_ctx": 8192, "swa_full": False, "type_k": Q8_0, "type_v": Q8_0, "flash_attn": True}),
    ("deepseek2", {"n_ctx": 5000, "type_k": Q8_0, "type_v": Q8_0, "flash_attn": True}),
    ("lfm2", {"n_ctx": 2048, "type_k": Q8_0}),
]


def _agrees(found: Comparison, rows: set[str]) -> None:
    """Not within a tolerance: cells to the digit, and bytes that print the same."""
    assert found.verdict is Verdict.AGREES, found.model_dump()
    compared = {row.name: row for row in found.rows if row.predicted is not None}
    assert set(compared) == rows | {"kv_bytes"}
    assert all(row.agrees for row in compared.values()), found.model_dump()
    assert all(compared[name].predicted == compared[name].reported for name in rows)


@pytest.mark.parametrize("architecture", KEYS)
def test_a_live_server_agrees(python: str, architecture: str, tmp_path: Path) -> None:
    model, log = write(tmp_path, architecture), tmp_path / "server.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [
        python, "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--n_ctx", "3000", "--n_gpu_layers", "0", "--n_threads", "1", "--verbose", "true",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(process, f"http://127.0.0.1:{port}/v1/models", log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
    _agrees(compare(model, log=log, engine="llamacpp"), CELLS[architecture])


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            pytest.fail("the server ended:\n" + log.read_text(encoding="utf-8", errors="replace")[-3000:])
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not answer within {START_SECONDS} s")


@pytest.mark.parametrize(("architecture", "options"), VARIANTS, ids=str)
def test_a_loaded_model_agrees(
    python: str, architecture: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Other contexts, cache types, batches and windows; the log says which, so nothing is told."""
    model, log = write(tmp_path, architecture), tmp_path / "load.log"
    with log.open("wb") as out:
        loaded = subprocess.run(
            [python, "-c", _LOAD, str(model), json.dumps(options)], stdout=out, stderr=subprocess.STDOUT
        )
    assert loaded.returncode == 0, log.read_text(encoding="utf-8", errors="replace")[-3000:]
    _agrees(compare(model, log=log), CELLS[architecture])


@pytest.mark.parametrize(
    ("architecture", "options", "settings"),
    [
        ("deepseek2", {"type_k": Q8_0}, {"cache_type_k": "q8_0"}),
        ("llama", {"type_v": Q8_0}, {"cache_type_v": "q8_0", "flash_attn": False}),
    ],
)
def test_what_does_not_start_is_refused(
    python: str, architecture: str, options: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    model = write(tmp_path, architecture)
    loaded = subprocess.run(
        [python, "-c", _LOAD, str(model), json.dumps({"flash_attn": False, **options})], capture_output=True
    )
    assert loaded.returncode != 0
    with pytest.raises(KvplanError) as refused:
        kvplan.size(str(model), engine="llamacpp", tokens=512, **settings)
    assert refused.value.code == "unsupported-dtype"


def test_another_model_differs(python: str, tmp_path: Path) -> None:
    """The log of a model with half the layers is not taken for this one's."""
    model, log = write(tmp_path, "llama"), tmp_path / "load.log"
    with log.open("wb") as out:
        subprocess.run(
            [python, "-c", _LOAD, str(model), "{}"], stdout=out, stderr=subprocess.STDOUT, check=True
        )
    assert compare(write(tmp_path, "deepseek2"), log=log, engine="llamacpp").verdict is Verdict.DIFFERS
