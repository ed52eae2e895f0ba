"""A real vLLM server on the CPU, asked over HTTP: ``kvplan compare --url`` agrees with it to the digit.

Runs where vllm 0.32 (the CPU build) is installed: ``make live``, or with KVPLAN_VLLM_PYTHON naming the
interpreter that has it. Weights are random (``--load-format dummy``); the tokenizer is made here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvplan.api import compare
from kvplan.comparison import Verdict
from tests.live.tiny import MODELS, vllm_python, write_model

pytestmark = pytest.mark.vllm
START_SECONDS = 300


@contextmanager
def _server(python: str, folder: Path) -> Iterator[tuple[str, Path]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "CUDA_VISIBLE_DEVICES": "", "VLLM_HOST_IP": "127.0.0.1",
    }  # fmt: skip
    arguments = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--load-format", "dummy",
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-num-seqs", "8",
        "--dtype", "bfloat16",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, log)
            yield url, log
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            pytest.fail("vLLM ended:\n" + log.read_text(encoding="utf-8", errors="replace")[-4000:])
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM did not answer within {START_SECONDS} s")


@pytest.mark.parametrize("name", MODELS)
def test_a_live_server_agrees(name: str, tmp_path: Path) -> None:
    python = vllm_python()
    write_model(tmp_path, MODELS[name])
    with _server(python, tmp_path) as (url, log):
        by_metrics = compare(tmp_path, url=url)
        by_log = compare(tmp_path, log=log)
    for found in (by_metrics, by_log):
        assert found.verdict is Verdict.AGREES, found.model_dump()
        rows = {row.name: row for row in found.rows if row.predicted is not None}
        assert {"kv_tokens", "max_concurrency"} <= set(rows)
        assert all(row.agrees for row in rows.values()), found.model_dump()
