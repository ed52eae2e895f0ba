"""The machine hour: every step's command line, its small form on the CPU, and the table of what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.cli import main
from kvplan.plans.receipt import PROOF, Figure, Receipt
from kvplan.proof.validate.rank_run import WORKING
from kvplan.units import GIB, MIB
from tests.gpu import hour
from tests.gpu.hour import Hour, Ran, _first, beside
from tests.gpu.room import beside_of, pool_of
from tests.gpu.steps import RECORDED, STEPS
from tests.gpu.table import Read, reasons, remarks
from tests.proof.fake_engine import interpreter
from tests.proof.test_engine_run import MEASURED

ROOT = Path(__file__).resolve().parents[2]
OF_A_RELEASE = [one for one in STEPS if one.ends == RECORDED]


def in_process(words: Sequence[str], out: Path, seconds: int) -> Ran:
    """The command in this process: every start of Python takes seconds."""
    assert words[0] == "kvplan"
    with (
        beside(out, ".txt").open("w") as text,
        beside(out, ".err").open("w") as errors,
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(errors),
    ):
        code = main([*words[1:]])
    return Ran(code, _first(out))


@contextlib.contextmanager
def _held(amount: int) -> Iterator[bool]:
    yield True


@pytest.mark.skipif(os.name != "posix", reason="engines run on Linux")
def test_every_step_starts_and_says_why_it_cannot_run_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command line is one of today's: it gets as far as the GPU that is not there, which is exit 3."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(hour, "_neighbour", _held)
    python = str(interpreter(tmp_path, MEASURED))
    there = Hour(
        tmp_path / "hour", {"vllm": python, "sglang": python}, runner=in_process, pool=lambda words: "8GiB"
    )
    said = {}
    for step in STEPS:
        if step not in OF_A_RELEASE:
            result = there.run(step)
            assert (result.done, result.good) == (False, False)
            said[step.name] = result.said
    assert {name: text for name, text in said.items() if not text.startswith("error[no-gpu]")} == {}
    assert [one.name for one in there.left()] == [one.name for one in STEPS]
    assert tarfile.is_tarfile(tmp_path / "hour.tgz")


def test_a_release_is_started_by_its_own_interpreter(tmp_path: Path) -> None:
    step = OF_A_RELEASE[0]
    without = Hour(tmp_path / "hour", {}).run(step)
    assert not without.done
    assert f"--python {step.engine}=FILE" in without.said
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ntest -f "$6/config.json" && echo "$2" > "$3"\n', encoding="utf-8")
    python.chmod(0o755)
    done = Hour(tmp_path / "hour", {step.engine: str(python)}).run(step)
    assert (done.done, done.good) == (True, True)
    assert (tmp_path / "hour" / f"{step.name}.pool").read_text() == "tests.gpu.allocations\n"


def test_the_small_form_rehearses_and_continues_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    folder = tmp_path / "hour"
    words = [str(folder), "--device", "cpu", "--only", "mqa,mla"]
    assert hour.main(words) == 0
    out = capsys.readouterr().out
    assert "2 receipts, none refuted" in out
    assert f"{len(STEPS) - 2} of {len(STEPS)} steps are left" in out
    with tarfile.open(tmp_path / "hour.tgz") as archive:
        assert {"hour/mla.json", "hour/mqa.json", "hour/results.tsv"} <= set(archive.getnames())
    rows = (folder / hour.RESULTS).read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["mla", "mqa"]  # in their order of worth
    assert hour.main(words) == 0
    assert (folder / hour.RESULTS).read_text().splitlines() == rows


def _ends(code: int, verdict: str | None, said: str = "") -> hour.Runner:
    def runner(words: Sequence[str], out: Path, seconds: int) -> Ran:
        assert "--time-limit" in words
        if verdict is not None:
            beside(out, ".json").write_text(json.dumps({"verdict": verdict}), encoding="utf-8")
        return Ran(code, said)

    return runner


@pytest.mark.parametrize(
    ("name", "runner", "good"),
    [
        ("control", _ends(1, "refuted"), True),
        ("control", _ends(0, "confirmed"), False),
        ("latent", _ends(0, "confirmed"), True),
        ("latent", _ends(1, "refuted"), False),
        ("latent", _ends(70, None), False),
        ("busy", _ends(3, None, "error[gpu-in-use]: 1 other process runs"), True),
        ("busy", _ends(0, "confirmed"), False),
        ("latent", _ends(3, None, "error[no-engine]: there is none"), None),
        ("chat", _ends(3, None, "error[other-gpu]: this is another"), None),
    ],
)
def test_a_step_ends_as_it_should_or_does_not(
    name: str, runner: hour.Runner, good: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the ones that must say no: one that says yes proves nothing of the others. None: left out."""
    monkeypatch.setattr(hour, "_neighbour", _held)
    step = next(one for one in STEPS if one.name == name)
    there = Hour(tmp_path / "hour", {}, runner=runner)
    result = there.run(step)
    assert (result.done, result.good) == ((False, False) if good is None else (True, good))
    assert (step in there.left()) is (good is None)


def test_time_that_is_up_leaves_the_rest_for_the_next_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hour.main([str(tmp_path / "hour"), "--minutes", "0"]) == 0
    out = capsys.readouterr().out
    assert "smoke: for the next hour, it may take 60 s" in out
    assert f"{len(STEPS)} of {len(STEPS)} steps are left" in out


def test_names_are_of_one_step_and_one_file() -> None:
    names = [one.name for one in STEPS]
    assert len(set(names)) == len(names)
    with pytest.raises(SystemExit):
        hour.main(["x", "--only", "no-such-step"])


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


def test_what_is_measured_is_packed_where_the_script_is_stopped(tmp_path: Path) -> None:
    """SIGTERM in the second run: the receipt of the first one is in the archive."""
    pytest.importorskip("torch", reason="torch is not installed")
    folder = tmp_path / "receipts"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.hour", str(folder), "--device", "cpu",
         "--only", "gqa,mha,mla,windows,moe,mqa"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    first, archive = folder / "gqa.json", folder.with_suffix(".tgz")
    for _ in range(1200):
        if first.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    with tarfile.open(archive) as packed:
        assert "receipts/gqa.json" in packed.getnames()
