"""``kvplan compare`` against a stand-in server, while it follows one, and with logs that mean no good."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.cli import compare as command
from kvplan.report.layout import to_ascii
from tests.cli.conftest import Run
from tests.cli.server import load_page, serving, vllm_pages
from tests.comparison.logs import vllm_log

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def test_a_server_agrees(run: Run) -> None:
    with serving(vllm_pages(16384, 262144, 2.0, model=LLAMA, length=131072)) as (url, seen):
        ran = run("compare", "--url", url)
    assert ran.code == 0
    assert ran.err == ""
    assert "vLLM 0.32 agrees on 3 figures of meta-llama/Llama-3.1-8B-Instruct" in ran.out
    assert re.search(r"tokens +262,144 +262,144 +0 +agrees", ran.out)
    assert "--watch" in ran.out
    assert max(len(row) for row in ran.out.splitlines()) <= 80
    assert all("authorization" not in headers for headers in seen)


def test_an_address_and_a_logs_path_need_no_option(run: Run, tmp_path: Path) -> None:
    with serving(vllm_pages(16384, 262144, 2.0, model=LLAMA, length=131072)) as (url, _):
        assert run("compare", url).out == run("compare", "--url", url).out
    path = tmp_path / "server.log"
    path.write_text(vllm_log(), encoding="utf-8")
    bare, named = run("compare", str(path)), run("compare", "--log", str(path))
    assert (bare.code, bare.out, bare.err) == (named.code, named.out, named.err)
    assert bare.code in (0, 1)
    assert run("compare", "missing.log").err.startswith("error[no-such-file]")


@pytest.mark.parametrize(
    "words",
    [("a.log", "b.log"), ("a.log", "--log", "b.log"), ("http://a", "--url", "http://b"), ("a.log", "-")],
)
def test_one_source_is_compared_with(run: Run, words: tuple[str, ...]) -> None:
    ran = run("compare", *words)
    assert ran.code == 2
    assert "one of them" in ran.err


def test_a_server_differs(run: Run) -> None:
    with serving(vllm_pages(16384, 131072, 1.0, model=LLAMA, length=131072)) as (url, _):
        ran = run("compare", "llama-3.1-8b", "--url", url, "--json")
    assert ran.code == 1
    data = json.loads(ran.out)
    assert data["verdict"] == "differs"
    assert {row["name"]: row["predicted"] for row in data["rows"]}["kv_tokens"] == 262144


def test_blocks_that_nothing_predicts_are_said_not_to_be_compared(run: Run) -> None:
    """Metrics alone agree with any number of blocks: their capacity is worked out, not compared."""
    pages = vllm_pages(16384, 262144, 2.0, model=LLAMA, length=131072)
    with serving(pages) as (url, _):
        alone = " ".join(run("compare", "--url", url).out.split())
    assert "capacity was not compared" in alone
    assert "16,384 blocks = 262,144 tokens = 32.00 GiB" in alone
    assert "2.0 requests of full length" in alone
    assert "--gpu h100 makes one" in alone


@pytest.mark.parametrize(
    ("blocks", "flags", "agrees"),
    [
        (27_400, [], True),
        (16_384, [], False),
        (27_400, ["--tp", "8"], False),
        (12_000, ["--gpu", "l40s"], True),
    ],
)
def test_with_a_gpu_the_blocks_of_metrics_are_those_of_the_budget(
    blocks: int, flags: list[str], agrees: bool, run: Run
) -> None:
    plain = vllm_pages(blocks, blocks * 16, blocks / 8192, model=LLAMA, length=131072)
    told = 'engine="0",gpu_memory_utilization="0.9",'

    def pages(path: str) -> str | None:
        body = plain(path)
        return None if body is None else body.replace('engine="0",', told)

    gpu = [] if "--gpu" in flags else ["--gpu", "h100"]
    with serving(pages) as (url, _):
        ran = run("compare", "--url", url, *gpu, *flags, "--json")
    rows = {row["name"]: row for row in json.loads(ran.out)["rows"]}
    row = rows["num_blocks"]
    assert row["predicted_low"] < row["predicted"] < row["predicted_high"]
    assert rows["num_blocks"]["agrees"] is agrees
    assert not any("capacity was not compared" in note for note in json.loads(ran.out)["notes"])
    assert ran.code == (0 if agrees else 1)


def test_a_share_of_the_memory_that_metrics_do_not_tell_is_said_to_be_assumed(run: Run) -> None:
    with serving(vllm_pages(27_400, 438_400, 3.34, model=LLAMA, length=131072)) as (url, _):
        said = " ".join(run("compare", "--url", url, "--gpu", "h100").out.split())
        given = run("compare", "--url", url, "--gpu", "h100", "--gpu-memory-utilization", "0.9")
    assert "the metrics do not tell gpu_memory_utilization: vllm's own was taken" in said
    assert "was taken" not in given.out


def test_a_token_goes_to_the_server_only_where_given(run: Run) -> None:
    with serving(vllm_pages(16384, 262144, 2.0, model=LLAMA, length=131072)) as (url, seen):
        assert run("compare", "--url", url, environment={"KVPLAN_TOKEN": "secret"}).code == 0
    assert {headers["authorization"] for headers in seen} == {"Bearer secret"}


def test_no_server_is_exit_code_3(run: Run) -> None:
    with serving(lambda _: None) as (url, _):
        nobody = run("compare", "llama-3.1-8b", "--url", url)
    assert nobody.code == 2
    assert "not-an-engine" in nobody.err
    gone = run("compare", "llama-3.1-8b", "--url", url)
    assert gone.code == 3
    assert "unreachable" in gone.err


def _moments() -> list[str]:
    return [
        load_page(0.10, 1000, 900, 0, 3, 0),
        load_page(0.95, 2000, 1000, 2, 12, 4),
        load_page(0.50, 2000, 1000, 2, 12, 4),
    ]


def test_watching_a_server(run: Run) -> None:
    pages = iter(_moments())
    with serving(lambda path: next(pages) if path == "/metrics" else None) as (url, _):
        ran = run("compare", "--url", url, "--watch", "0", "--samples", "3")
    assert ran.code == 0
    rows = ran.out.replace(url, "URL").splitlines()
    assert rows[0] == "Following vLLM at URL every 0 s; Ctrl-C ends."
    assert rows[2].split() == ["seconds", "running", "waiting", "cache", "hits", "preempted"]
    assert rows[3].split() == ["0", "3", "0", "10.0", "%", "90.0", "%", "0"]
    assert rows[4].split() == ["0", "12", "4", "95.0", "%", "10.0", "%", "2", "(+2)"]
    assert rows[5].strip() == "! cache above 90 %; prefix cache hits below 50 %; preemptions rise"
    assert rows[6].split() == ["0", "12", "4", "50.0", "%", "-", "2"]
    assert len(rows) == 7
    assert max(map(len, rows)) <= 80


def test_watching_as_json_lines(run: Run) -> None:
    pages = iter(_moments())
    with serving(lambda path: next(pages) if path == "/metrics" else None) as (url, _):
        ran = run("compare", "--url", url, "--watch", "0", "--samples", "2", "--json")
    first, second = (json.loads(row) for row in ran.out.splitlines())
    assert first["flags"] == []
    assert second["cache_usage"] == 0.95
    assert second["new_preemptions"] == 2
    assert second["flags"] == ["cache above 90 %", "prefix cache hits below 50 %", "preemptions rise"]


def test_watching_ends_with_ctrl_c(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with serving(lambda _: load_page(0.1, 0, 0, 0, 1, 0)) as (url, _):
        ran = run("compare", "--url", url, "--watch")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.splitlines()[-1].split()[:3] == ["0", "1", "0"]


def test_a_server_that_goes_away_while_it_is_watched(run: Run) -> None:
    asked = iter(range(10))

    def pages(_: str) -> str | None:
        return load_page(0.1, 0, 0, 0, 1, 0) if next(asked) in (0, 2) else None

    with serving(pages) as (url, _):
        ran = run("compare", "--url", url, "--watch", "0")
    assert ran.code == 2
    assert ran.out.count("shows no metrics") == command.LOST_AFTER
    assert "not-an-engine" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "--watch"),
        ("compare", "--log", "inputs/gemma.log", "--watch"),
        ("compare", "--url", "http://localhost:1", "--samples", "3"),
        ("compare", "a", "b", "--log", "inputs/gemma.log"),
        ("compare", "--log", "inputs/gemma.log", "--engine", "vllm,sglang"),
        ("compare", "--log", "inputs/gemma.log", "-"),
    ],
)
def test_questions_that_make_no_sense(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("error[bad-usage]")


def test_a_log_of_a_model_that_no_card_has(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(vllm_log(model="/etc/passwd"), encoding="utf-8")
    ran = run("compare", "--log", str(log))
    assert ran.code == 2
    assert "unknown-model" in ran.err
    ran = run("compare", "inputs/llama.json", "--log", str(log))
    assert ran.code in (0, 1)


def test_the_same_bytes_each_time_and_in_ascii(run: Run) -> None:
    first, second = (run("compare", "--log", "inputs/gemma.log") for _ in range(2))
    assert first == second
    ascii_only = run("compare", "--log", "inputs/gemma.log", encoding="ascii")
    assert ascii_only.out == to_ascii(first.out)


def test_colour_changes_nothing_but_colour(run: Run) -> None:
    plain = run("compare", "--log", "inputs/fp8.log")
    coloured = run("compare", "--log", "inputs/fp8.log", "--color", "always")
    assert "\x1b[" in coloured.out
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured.out).split() == plain.out.split()


HOSTILE = [
    vllm_log(version="0." + "9" * 500),
    vllm_log(model="x" * 100_000),
    vllm_log(pools=("9" * 29,), tokens="9" * 29, concurrency="9" * 20),
    vllm_log(pools=("-2.14",), tokens=None, concurrency=None),
    vllm_log(pools=("0.00",), tokens="0", concurrency="0.00"),
    vllm_log(length=10**15),
    vllm_log(config=", kv_cache_dtype='" + "\x1b[31m" * 10 + "'"),
    vllm_log(config=", decode_context_parallel_size=7, pipeline_parallel_size=999999999"),
    vllm_log(config=", block_size=3, max_num_seqs=-1, enable_prefix_caching='maybe'"),
    vllm_log(pools=("16.00",) * 64),
    vllm_log(config=", attention_backend='\\x00\\x07'"),
    vllm_log(config=", speculative_config={'method': 'mtp', 'num_speculative_tokens': 10000000000}"),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_logs(run: Run, text: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    began = time.process_time()
    for flags in ((), ("--json",)):
        ran = run("compare", "llama-3.1-8b", "--log", str(log), *flags)
        assert ran.code in (0, 1, 2), ran.err
        assert "Traceback" not in ran.err
        assert "\x1b" not in ran.out
    assert time.process_time() - began < 20


@given(cut=st.integers(min_value=0, max_value=600), junk=st.binary(max_size=60), at=st.integers(0, 600))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cut_and_garbled_logs(run: Run, cut: int, junk: bytes, at: int) -> None:
    text = vllm_log().encode()
    ran = run("compare", "llama-3.1-8b", "-", stdin=text[:at] + junk + text[at : len(text) - cut])
    assert ran.code in (0, 1, 2), ran.err
