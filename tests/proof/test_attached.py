"""``compare PLAN --url URL --receipt FILE``: a server that runs already, over a stand-in for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.cli.validate_target import Asked
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.installed import load
from tests.cli.server import serving
from tests.proof.fake_engine import Serving
from tests.proof.test_plan_to_check import PLAN

TEXT = PLAN.replace("evidence/chat-h200-sxm-141gb.json", "r.json")
RUNNING = 4


@contextmanager
def server(**says: Any) -> Iterator[str]:
    class Quick(ThreadingHTTPServer):
        request_queue_size = 128

    Serving.begin({"slots": RUNNING, "list": {"max_model_len": 1024}, **says})
    one = Quick(("127.0.0.1", 0), Serving)
    thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{one.server_address[1]}"
    finally:
        one.shutdown()
        one.server_close()
        thread.join()


def plan_in(folder: Path) -> tuple[Path, int]:
    """The plan, and the blocks that it says."""
    path = folder / "chat.yaml"
    path.write_text(TEXT, encoding="utf-8")
    pool = Asked([str(path)], {}).target(None, on_gpu=True).result.pool
    assert pool is not None
    assert pool.max_running == RUNNING
    return path, pool.num_blocks


def attach(folder: Path, *words: str, off: int = 0, **says: Any) -> tuple[int, Path]:
    path, blocks = plan_in(folder)
    cache = {"num_gpu_blocks": blocks + off, "block_size": 16}
    with server(**{"cache": cache, **says}) as url:
        receipt = folder / "r.json"
        code = main(["compare", str(path), "--url", url, "--receipt", str(receipt), *words])
        if receipt.exists():
            assert url.removeprefix("http://") not in receipt.read_text(encoding="utf-8")
            assert "127.0.0.1" not in receipt.read_text(encoding="utf-8")
    return code, path


def figures(folder: Path) -> dict[str, Figure]:
    return {one.name: one for one in read_receipt(folder / "r.json").receipt.figures}


def test_a_running_server_is_evidence_of_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPLAN_TOKEN", "secret-of-mine")
    code, path = attach(tmp_path, "--load")
    assert code == 0, capsys.readouterr()
    assert all(one["Authorization"] == "Bearer secret-of-mine" for one in Serving.sent_to)
    assert len(Serving.asked) == RUNNING + RUNNING + 1
    assert len({tuple(one) for one in Serving.asked}) == len(Serving.asked)
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert "secret-of-mine" not in text
    found = read_receipt(tmp_path / "r.json").receipt
    assert (found.kind, found.verdict, found.engine_run["attached"]) == ("proof", "confirmed", True)
    assert found.engine_run["pool"]["num_blocks"] == figures(tmp_path)["engine_num_blocks"].predicted
    assert {"engine_requests", "engine_num_blocks", "served_one_more_waits"} <= set(found.confirmed_by)
    capsys.readouterr()
    assert main(["check", str(path)]) == 0, capsys.readouterr().out
    assert "measured on a running server" in " ".join(capsys.readouterr().out.split())


def test_without_a_load_the_receipt_lacks_the_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = attach(tmp_path)
    assert code == 0
    assert Serving.asked == []
    capsys.readouterr()
    assert main(["check", str(path)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "lacks what a validation of this plan measures: engine_requests" in out


@pytest.mark.parametrize(
    ("words", "says", "name"),
    [
        ((), {"off": 1}, "engine_num_blocks"),
        ((), {"list": {"max_model_len": 2048}}, "engine_max_model_len"),
        (("--load",), {"slots": RUNNING + 1}, "engine_requests"),
        (("--load",), {"preemptions": 1}, "served_preemptions"),
        (("--load",), {"refuse": 3}, "served_requests"),
        (("--load",), {"away": "http://example.invalid/v1/completions"}, "served_requests"),
    ],
)
def test_a_server_that_does_otherwise_refutes(
    words: tuple[str, ...], says: dict[str, Any], name: str, tmp_path: Path
) -> None:
    code, path = attach(tmp_path, *words, **says)
    assert code == 1
    assert not figures(tmp_path)[name].agrees
    assert main(["check", str(path)]) == 1


def test_requests_that_were_not_seen_together_are_no_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = attach(tmp_path, "--load", blind=RUNNING - 1)
    assert code == 0  # the pool is confirmed
    assert figures(tmp_path)["engine_requests"].evidence == "reported"
    assert "was not seen" in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(path)]) == 1


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("--load",), {"others": 2}, "server-in-use"),
        ((), {"version": "0.29.0"}, "other-release"),
    ],
)
def test_what_proves_nothing_writes_nothing(
    words: tuple[str, ...],
    says: dict[str, Any],
    code: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "_IDLE_SECONDS", 0.0)
    assert attach(tmp_path, *words, **says)[0] == 3
    assert f"error[{code}]" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()
    assert Serving.asked == []


@pytest.mark.parametrize(
    "words",
    [
        ("llama-3.1-8b", "http://127.0.0.1:1", "--receipt", "r.json"),
        ("http://127.0.0.1:1", "--receipt", "r.json"),
        ("llama-3.1-8b", "http://127.0.0.1:1", "--load"),
        ("http://127.0.0.1:1", "--watch", "--receipt", "r.json"),
    ],
)
def test_a_receipt_is_of_a_plan(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 2
    assert "error[bad-usage]" in capsys.readouterr().err


SGLANG = """\
kvplan: plan/v1
name: chat
model: llama-3.1-8b
engine: sglang@0.5.9
gpu: mi300x
serve: {context_length: 16384}
require: {requests: 20, tokens: 4096}
"""


@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.999, 0), (0.6, 1), (None, 2)])
def test_tokens_that_another_engine_tells_are_held_against_the_plan(
    share: float | None, code: int, tmp_path: Path
) -> None:
    """SGLang on an AMD GPU tells tokens alone: within the budget's interval, outside it, not at all."""
    path, output = tmp_path / "chat.yaml", tmp_path / "r.json"
    path.write_text(SGLANG, encoding="utf-8")
    pool = Asked([str(path)], {}).target(None, on_gpu=True).result.pool
    assert pool is not None
    used = {} if share is None else {"token_capacity": int(pool.kv_tokens * share)}
    page = json.dumps(
        {"version": "0.5.9", "context_length": 16384, "internal_states": [{"memory_usage": used}]}
    )
    with serving(lambda path: page if path == "/server_info" else None) as (url, _):
        assert main(["compare", str(path), "--url", url, "--receipt", str(output)]) == code
    assert output.exists() == (share is not None)
