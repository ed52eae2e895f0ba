"""``--serve``: the engine's server, its log and a load of the plan's shape, over a stand-in for it."""

from __future__ import annotations

import json
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import CannotRunHere
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.load import Served, prompt_of
from kvplan.proof.validate.installed.process import TimeUp
from kvplan.proof.validate.installed.served import load_figures
from kvplan.proof.validate.installed.serving import Server
from tests.proof.fake_engine import interpreter
from tests.proof.test_engine_run import MEASURED, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="engines run on Linux")


def serve(folder: Path, **more: Any) -> tuple[int, dict[str, Any]]:
    output = folder / "r.json"
    code = run(folder, {**MEASURED, **more}, "--serve", "--output", str(output))
    return code, {one.name: one for one in read_receipt(output).receipt.figures}


def test_a_server_that_serves_what_was_said_confirms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words.json"
    code, figures = serve(tmp_path, words=str(words))
    assert code == 0, capsys.readouterr().out
    assert (figures["served_requests"].predicted, figures["served_requests"].measured) == (31, 31)
    assert figures["served_log_lines"].measured == 2
    assert figures["served_log_lines_that_differ"].evidence == "confirmed"
    assert figures["served_preemptions"].measured == 0
    assert figures["served_usage_peak_ppm"].measured == 500_000
    assert figures["served_stopped_when_asked"].measured == 1
    assert figures["engine_num_blocks"].agrees  # the worker's figures stand beside them
    told = json.loads(words.read_text())
    assert told[:2] == ["-m", "engine.server"]
    assert "--skip-tokenizer-init" not in told


@pytest.mark.parametrize(
    ("more", "name", "said"),
    [
        ({"preemptions": 2}, "served_preemptions", "served preemptions !"),
        ({"short": 1}, "served_answers_of_another_length", "served answers of another length !"),
        ({"refuse": 3}, "served_requests", "a request was not answered: status 400"),
        ({"log": {"tokens": "32,640"}}, "served_log_lines_that_differ", "error: the server's log:"),
    ],
)
def test_a_server_that_does_otherwise_refutes(
    more: dict[str, Any], name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, figures = serve(tmp_path, **more)
    assert code == 1
    assert not figures[name].agrees
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_server_that_does_not_start_leaves_the_worker_s_receipt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    assert run(tmp_path, {**MEASURED, "ends": True}, "--serve", "--output", str(output)) == 3
    err = capsys.readouterr().err
    assert "error[server-ended]: the engine's server ended with exit code 1" in err
    assert "ValueError: no such option" in err
    assert read_receipt(output).receipt.verdict == "confirmed"


def _server(folder: Path, **more: Any) -> Server:
    says = {name: more.pop(name) for name in ("deaf",) if name in more}
    return Server([str(interpreter(folder, says)), "-m", "x"], folder / "log", **more)


def test_a_server_that_does_not_stop_is_ended(tmp_path: Path) -> None:
    with _server(tmp_path, deaf=True, stop_seconds=0.3) as server:
        kept = server._kept
        assert kept is not None
    assert kept.code is not None
    assert server.stopped is False


def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "sleeper"
    path.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    path.chmod(0o755)
    server = Server([str(path)], tmp_path / "log", ready_seconds=0.1)
    with pytest.raises(CannotRunHere, match="did not answer within 0 s"):
        server.__enter__()
    assert server._kept is None


def test_the_time_limit_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(TimeUp):
        _server(tmp_path, stop=lambda: True).__enter__()


def test_no_server_to_serve_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotRunHere, match="does not start"):
        Server([str(tmp_path / "none")], tmp_path / "log").__enter__()


@given(st.lists(st.integers(0, 10**9), unique=True, min_size=2, max_size=20), st.integers(8, 200))
def test_no_two_prompts_begin_alike(numbers: list[int], tokens: int) -> None:
    prompts = [prompt_of(number, tokens) for number in numbers]
    assert {len(one) for one in prompts} == {tokens}
    assert max(Counter(tuple(one[:8]) for one in prompts).values()) == 1
    assert all(2 <= token < 256 for one in prompts for token in one)


def test_what_a_server_does_not_say_decides_nothing() -> None:
    told = Served(3, 3, 0, None, None, None, Fraction(1, 3), 1)
    figures = {one.name: one for one in load_figures(told, True)}
    assert figures["served_preemptions"].evidence == "reported"
    assert figures["served_usage_peak_ppm"].measured == 333_333
    assert all(one.agrees for one in figures.values())
