"""Sweeps: the same results from every executor, a file that is taken up, workers that are lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api.sweeps.executors import Items, _uninterrupted, executor_of, processes, reach, serial
from kvplan.api.sweeps.tasks import combinations, over_of, read_done, row_of
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.report.layout import plain
from kvplan.report.simulate import sweep_screen
from kvplan.simulation.load.generate import Asked, generated

LOAD = generated(Asked(requests=40, rate=20.0, input=500, output=30, prefix=160))
OVER: dict[str, list[Any]] = {"replicas": [1, 2], "max_num_seqs": [4, "x", 64]}
ASKED: dict[str, Any] = {
    "gpu": "h100", "max_model_len": 4096, "pool": "likely", "search": False, "helps": False,
    "step_time": "6ms+25us*tokens",
}  # fmt: skip


def _swept(executor: str, **more: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(kvplan.sweep("llama-3.1-8b", trace=LOAD, over=OVER, executor=executor, **ASKED, **more))


def test_processes_give_the_bytes_of_serial_in_order(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("serial", "processes")]
    found = [_swept(file.name, resume=file) for file in files]
    assert json.dumps(found[0]) == json.dumps(found[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    assert [change for change, _ in found[0]] == combinations(OVER)
    assert ["error" in answer for _, answer in found[0]] == [False, True, False] * 2
    assert found[0][0][1] != found[0][3][1]


def test_a_file_is_taken_up_where_it_was_left(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    whole = _swept("serial", resume=file)
    data = file.read_bytes()
    lines = data.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:-30])  # Ctrl-C in the middle of the third
    assert len(read_done(file)) == 2
    running = kvplan.sweep("llama-3.1-8b", trace=LOAD, over=OVER, executor="serial", resume=file, **ASKED)
    for _ in range(3):
        next(running)
    running.close()  # type: ignore[attr-defined]
    assert len(read_done(file)) == 3
    assert _swept("serial", resume=file) == whole
    assert file.read_bytes() == data


def test_a_run_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    _swept("serial", resume=file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["answer"] = {"error": {"message": "as it was"}}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert all(answer["error"]["message"] == "as it was" for _, answer in _swept("serial", resume=file))


def test_a_file_that_is_none_of_a_sweep_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("my notes\nmore\n")
    with pytest.raises(KvplanError, match="line 1"):
        _swept("serial", resume=file)
    assert file.read_text() == "my notes\nmore\n"


def _dies_once(state: str, item: int) -> int:
    """The worker of item 2 is lost the first time; that of item 3 every time."""
    mark = Path(state) / str(item)
    if item == 3 or (item == 2 and not mark.exists()):
        mark.touch()
        os._exit(1)
    return item * 10


def test_a_lost_worker_costs_one_run(tmp_path: Path) -> None:
    items: Items = [(number, number) for number in range(5)]
    found = dict(processes(_dies_once, str(tmp_path), items, workers=2))
    assert {number: value for number, value in found.items() if number != 3} == {0: 0, 1: 10, 2: 20, 4: 40}
    assert found[3]["error"]["code"] == "worker-lost"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_an_interrupt_waits_until_all_workers_are_begun_and_ends_them(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _interrupted(tmp_path / "reached")
    assert (tmp_path / "reached").exists()
    before = set(active_children())
    running = processes(_sleeps, None, [(number, number) for number in range(3)], workers=2)
    assert next(running) == (0, 0)
    workers = set(active_children()) - before
    assert workers
    running.close()  # type: ignore[attr-defined]
    for worker in workers:
        worker.join(60)
    # The pool's own thread waits for them too: which of the two hears it first, the other asks once more.
    for _ in range(100):
        if any(worker.is_alive() for worker in workers):
            time.sleep(0.1)
    assert not any(worker.is_alive() for worker in workers)


def _interrupted(mark: Path) -> None:
    with _uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        mark.touch()


def _sleeps(_: None, item: int) -> int:
    time.sleep(300 if item else 0)
    return item


def test_what_a_file_has_is_of_this_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs"
    _swept("serial", resume=file)
    monkeypatch.setattr("kvplan.api.sweeps.tasks.__version__", "0.0.0")
    _swept("serial", resume=file)
    assert len(file.read_text().splitlines()) == 2 * len(combinations(OVER))


def test_auto_is_serial_for_few_runs() -> None:
    assert executor_of("auto", 19) is serial
    assert executor_of("auto", 20) is (processes if (os.cpu_count() or 1) > 1 else serial)


@pytest.mark.parametrize("spec", ["", "threads", "serial://here", "process", "dsk"])
def test_executors_that_there_are_not(spec: str) -> None:
    with pytest.raises(KvplanError) as caught:
        executor_of(spec, 1)
    assert caught.value.code == "unknown-executor"


@pytest.mark.parametrize("kind", ["dask", "ray"])
@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1:{}", "Connection refused"), ("here", "no HOST:PORT"), ("h:x", "no HOST")],
)
def test_a_cluster_that_is_not_there_is_said_at_once(kind: str, address: str, says: str) -> None:
    with socket.socket() as one:  # its port is free once it is closed
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with pytest.raises(CannotRunHere, match=says) as caught:
        reach(kind, address.format(port))
    assert (caught.value.code, caught.value.exit_code) == ("no-cluster", 3)
    assert f"{kind}://HOST:" in str(caught.value.help)


def test_a_cluster_that_listens_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach("ray", f"127.0.0.1:{server.getsockname()[1]}")
    reach("ray", "")


def _wait_for(port: int) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.3)
    pytest.skip("the Ray head's proxy does not come up here")


def test_a_real_ray_head_gives_the_bytes_of_serial() -> None:
    pytest.importorskip("ray", reason="ray comes with kvplan[ray]")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    words = [
        "start",
        "--head",
        "--num-cpus=2",
        f"--ray-client-server-port={port}",
        "--include-dashboard=false",
    ]
    started = subprocess.run([*ray, *words], capture_output=True, text=True)
    if started.returncode:
        pytest.skip(f"no Ray head starts here: {started.stderr[-200:]}")
    try:
        _wait_for(port)  # the head's proxy listens a moment later
        assert json.dumps(_swept(f"ray://127.0.0.1:{port}")) == json.dumps(_swept("serial"))
    finally:
        subprocess.run([*ray, "stop", "--force"], capture_output=True)


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_of_two_workers_gives_the_same(name: str, package: str) -> None:
    """Where its package is not installed, the answer says which one it needs."""
    try:
        __import__(package)
    except ImportError:
        with pytest.raises(CannotRunHere, match=f"needs the package {name}"):
            _swept(name)
        return
    assert _swept(name) == _swept("serial")


@pytest.mark.parametrize("text", ["", "replicas", "replicas=", "=2", "a=1 a=2", "a=1,,2"])
def test_words_that_are_no_sweep(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        over_of(text)
    assert caught.value.code == "bad-sweep"


def test_the_screen_says_what_differs_and_why_a_run_has_no_answer() -> None:
    found = {
        "hit_rate": 0.5, "goodput": 1.0, "ttft_p99": 1.5, "tpot_p99": 0.02, "saturated": 0, "runs": 6,
        "replicas": 2, "refused": 0,
    }  # fmt: skip
    rows: Any = [({"rate": "5", "max_num_batched_tokens": "2048"}, found)]
    text = plain(sweep_screen(rows, target=False))
    assert "max_num_batched_tokens  hit rate  TTFT p99  TPOT p99" in text
    assert not any(word in text for word in ("needed", "in target", "refused", "saturated"))
    needed = {**found, "replicas_needed": 3, "replicas_safely": None}
    rows = [*rows, ({"rate": "80", "max_num_batched_tokens": "8192"}, needed)]
    rows = [(change, {**needed, **one}) for change, one in rows]
    text = plain(sweep_screen(rows, target=True))
    last = "80 8192 3 none 50.0 % 100.0 % 1.5 s 20 ms"
    assert text.splitlines()[-1].split() == last.split()
    assert len(text.splitlines()) == 3
    assert max(map(len, text.splitlines())) <= 80
    less: Any = [(change, {**found, "refused": 1200}) for change, _ in rows]
    assert plain(sweep_screen(less, target=False)).splitlines()[0].endswith("refused")
    broken: Any = {"error": "unknown GPU"}
    rows = [*rows, ({"rate": "81", "max_num_batched_tokens": "1"}, broken)]
    assert "No: rate=81 max_num_batched_tokens=1: unknown GPU" in plain(sweep_screen(rows, target=True))
    rows = [(change, broken) for change, _ in rows]
    assert "No: every run: unknown GPU" in plain(sweep_screen(rows, target=True))


def test_a_sweep_over_loads_says_how_many_replicas_each_needs() -> None:
    ((_, few), (_, many)) = kvplan.sweep(
        "llama-3.1-8b", trace=LOAD, over={"rate": [1, 60]}, executor="serial",
        **{**ASKED, "replicas": "auto", "ttft": 1, "max_num_seqs": 1},
    )  # fmt: skip
    needed = [row_of(one)["replicas_needed"] for one in (few, many)]
    assert needed[0] == 1 < needed[1]


def test_values_of_a_sweep() -> None:
    said = over_of("--max-num-seqs=16,64; enable_prefix_caching=on,off kv_cache_dtype=fp8 rate=2.5")
    assert said == {
        "max_num_seqs": [16, 64], "enable_prefix_caching": [True, False], "kv_cache_dtype": ["fp8"],
        "rate": ["2.5"],
    }  # fmt: skip


def test_a_sweep_of_a_plan_changes_its_settings() -> None:
    path = Path(__file__).parents[2] / "examples" / "plans" / "chat-llama-3.1-8b-trace-h100.yaml"
    (plan,) = kvplan.load_plans(path)
    over: dict[str, list[Any]] = {"serve.max_num_seqs": [2, 64], "rate": ["4"]}
    few, many = kvplan.sweep(
        plan, over=over, executor="serial", first=60, step_time="6ms", search=False, helps=False
    )
    assert few[0] == {"serve.max_num_seqs": 2, "rate": "4"}
    assert few[1]["latency_seconds"]["p99"]["value"] > many[1]["latency_seconds"]["p99"]["value"]
