"""Several ranks under torchrun with gloo agree, and leave every stage in step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.proof.validate.ranks import OtherRankStopped, World

ROOT = Path(__file__).resolve().parents[2]


def _torchrun(ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch.distributed", reason="torch is not installed")
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
         "-m", "kvplan.proof", *words, "--device", "cpu", "--reserve", "0B", "--json"],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (2, ("deepseek-v2-lite", "--tp", "2", "--dcp", "2")),
        (4, ("qwen3-8b", "--tp", "2", "--pp", "2", "--find-limit")),
    ],
)
def test_ranks_agree_and_write_one_receipt(ranks: int, words: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "receipt.json"
    done = _torchrun(ranks, *words, "--kv-cache-memory", "32MiB", "--output", str(output))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["verdict"], data["kind"]) == ("self-consistent", "rehearsal")
    figures: list[dict[str, Any]] = data["receipt"]["figures"]
    assert {one["rank"] for one in figures} == {None, *range(ranks)}
    alike = next(one for one in figures if one["name"] == "ranks_alike")
    assert (alike["predicted"], alike["measured"]) == (ranks, ranks)
    assert json.loads(output.read_text(encoding="utf-8")) == data["receipt"]
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]


def test_one_error_is_said_once() -> None:
    done = _torchrun(2, "qwen3-8b", "--tp", "2", "--kv-cache-memory", "1MiB")
    assert done.returncode != 0
    assert done.stderr.count("error[no-memory]") in (1, 2)  # a rank may be ended while it says so


def test_too_few_ranks_are_told_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    from kvplan.cli import main

    pytest.importorskip("torch", reason="torch is not installed")
    assert main(["validate", "qwen3-8b", "--tp", "2", "--device", "cpu", "--kv-cache-memory", "32MiB"]) == 3
    err = capsys.readouterr().err
    assert "one replica takes 2 ranks (tensor_parallel_size 2), and 1 runs" in " ".join(err.split())
    assert "torchrun --nproc-per-node 2 -m kvplan.proof" in err


def test_a_rank_learns_its_place_from_torchrun() -> None:
    world = World(
        {
            "TORCHELASTIC_RUN_ID": "none",
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
        }
    )
    assert (world.rank, world.size, world.local_rank, world.local_size) == (3, 4, 1, 2)
    assert not world.leads
    job = World({"RANK": "1", "WORLD_SIZE": "4"})  # Slurm's or a pod's own: no torchrun started this
    assert (job.rank, job.size) == (0, 1)
    alone = World({"TORCHELASTIC_RUN_ID": "none", "RANK": "x"})
    assert (alone.rank, alone.size, alone.leads, alone.everyone(7)) == (0, 1, True, [7])


def test_ranks_leave_a_stage_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({})
    assert world.in_step(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        world.in_step(lambda: 1 // 0)
    monkeypatch.setattr(world, "everyone", lambda failed: [failed, True])
    with pytest.raises(OtherRankStopped):
        world.in_step(lambda: 5)
