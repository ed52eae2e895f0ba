"""The paths of a GPU, over a torch.cuda that is faked: they run, add up, refuse and let go."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kvplan.api import load_gpu, load_model, make_settings
from kvplan.cli import main
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.fitting import choose
from kvplan.plans.plan import Requirements
from kvplan.plans.receipt import CONFIRMED, PROOF, REFUTED
from kvplan.validate.course import Options
from kvplan.validate.devices import CudaDevice, open_device
from kvplan.validate.probe import Hardware, compared, probe_cuda, refuse_others
from kvplan.validate.ranks import World
from kvplan.validate.receipts import receipt_of
from kvplan.validate.session import Outcome, run_session
from kvplan.validate.target import Target, bare_plan, target_of
from tests.validate.fake_cuda import GIB, MIB, FakeCuda, fake_cuda, install

__all__ = ["fake_cuda"]
POOL = 64 * MIB
ALONE = World({})
OPTIONS = Options()


def _target(hardware: Hardware, **options: object) -> Target:
    settings = make_settings(**{"kv_cache_memory": POOL, "weights": 40 * MIB, "max_num_batched_tokens": 64,
                                "max_num_seqs": 8, **options})  # fmt: skip
    model, choice = load_model("gpt-oss-20b"), choose("vllm")
    plan = bare_plan(model, choice, settings)
    return target_of(plan, model, choice, asks_proof=False, on_gpu=hardware.kind != "cpu",
                     changes={"kv_cache_memory": settings.kv_cache_memory})  # fmt: skip


def _run(options: Options = OPTIONS, **settings: object) -> Outcome:
    return run_session(lambda hardware: _target(hardware, **settings), options, ALONE)


def _receipt(outcome: Outcome) -> object:
    return receipt_of(
        outcome.target, outcome.hardware, outcome.figures, outcome.findings, outcome.notes,
        created="2026-01-02T03:04:05Z", stopped_at=outcome.stopped_at,
        out_of_memory=outcome.stopped_by == "memory",
    )  # fmt: skip


def test_a_whole_run_is_a_proof_whose_reserved_bytes_are_predicted(fake_cuda: FakeCuda) -> None:
    outcome = _run()
    found = {figure.name: figure for figure in outcome.figures}
    for name in ("weights_bytes", "weights_reserved_bytes", "pool_allocated_bytes", "pool_reserved_bytes",
                 "rounding_reserved_bytes", "requests", "states_wrong"):  # fmt: skip
        figure = found[name]
        assert (figure.predicted, figure.allowed_ppm) == (figure.measured, 0), name
    assert found["device_runtime_bytes"].agrees
    assert found["context_bytes"].measured is not None
    assert found["context_bytes"].measured >= 500 * MIB
    assert found["activation_beside_pool_bytes"].measured == found["activation_probe_bytes"].measured
    assert {"copy_bytes_per_second", "gather_bytes_per_second", "host_to_device_bytes_per_second"} <= set(
        found
    )
    assert fake_cuda.calls.count("replay") == fake_cuda.calls.count("reset") == 4  # 1, 2, 4 and 8 sequences
    receipt = _receipt(outcome)
    assert (receipt.kind, receipt.verdict) == (PROOF, CONFIRMED)  # type: ignore[attr-defined]


def test_everything_is_released_after_a_run(fake_cuda: FakeCuda) -> None:
    outcome = _run()
    assert outcome.stopped_by is None
    gc.collect()
    assert fake_cuda.allocator.requested == 0
    fake_cuda.allocator.empty_cache()
    assert fake_cuda.allocator.reserved == 0


def test_memory_that_runs_out_refutes_and_names_the_stage(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has less than it says: allocations fail though the room was checked."""
    take = fake_cuda.take

    def less(tensor: object) -> object:
        if fake_cuda.allocator.requested > 90 * MIB:
            import torch

            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.\nmore")
        return take(tensor)

    monkeypatch.setattr(fake_cuda, "take", less)
    outcome = _run()
    assert (outcome.stopped_by, outcome.stopped_at) == ("memory", "graphs")
    assert _receipt(outcome).verdict == REFUTED  # type: ignore[attr-defined]
    gc.collect()
    assert fake_cuda.allocator.requested == 0
    assert "CUDA out of memory. Tried to allocate 64.00 MiB." in outcome.notes


def test_segments_that_nobody_predicted_refute(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    stats = fake_cuda.stats
    monkeypatch.setattr(
        torch.cuda,
        "memory_stats",
        lambda index=None: {
            **stats(), "reserved_bytes.all.current": stats()["reserved_bytes.all.current"] * 2
        },
    )  # fmt: skip
    outcome = _run()
    assert not next(one for one in outcome.figures if one.name == "pool_reserved_bytes").agrees
    assert _receipt(outcome).verdict == REFUTED  # type: ignore[attr-defined]


def test_other_allocator_settings_leave_segments_unpredicted(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    outcome = _run()
    figure = next(one for one in outcome.figures if one.name == "pool_reserved_bytes")
    assert (figure.predicted, figure.allowed_ppm) == (None, None)
    assert any("expandable_segments" in note for note in outcome.notes)


def test_the_limit_is_where_memory_runs_out(fake_cuda: FakeCuda) -> None:
    fake_cuda.total = 1 * GIB
    outcome = _run(Options(find_limit=True, reserve=0))
    found = {figure.name: figure for figure in outcome.figures}
    limit = found["limit_pool_bytes"].measured
    assert limit is not None
    room = 1 * GIB - 500 * MIB - 40 * MIB
    assert room - 8 * MIB <= limit <= room
    assert (found["limit_requests"].measured or 0) > (found["limit_requests"].predicted or 0)


def test_the_reserve_bounds_the_limit(fake_cuda: FakeCuda) -> None:
    fake_cuda.total = 2 * GIB
    outcome = _run(Options(find_limit=True, reserve=GIB))
    limit = next(one.measured for one in outcome.figures if one.name == "limit_pool_bytes")
    assert limit is not None
    assert limit <= GIB - 500 * MIB
    assert any("--reserve" in note for note in outcome.notes)


def test_too_little_room_is_refused_with_a_pool_that_fits(fake_cuda: FakeCuda) -> None:
    fake_cuda.total = 700 * MIB
    with pytest.raises(CannotRunHere) as caught:
        _run(Options(reserve=100 * MIB))
    assert caught.value.code == "no-room"
    help_line = caught.value.help[0]
    size = help_line.rpartition(" ")[2]
    fake_cuda.context = 0  # another process
    fitting = _run(Options(reserve=100 * MIB), kv_cache_memory=size)
    assert fitting.stopped_by is None


def test_other_processes_are_respected(fake_cuda: FakeCuda) -> None:
    fake_cuda.processes = [SimpleNamespace(pid=1, usedGpuMemory=3 * GIB)]
    fake_cuda.others = 3 * GIB
    with pytest.raises(CannotRunHere, match="1 other process runs on NVIDIA Fake GPU") as caught:
        _run()
    assert caught.value.detail == ("process 1: 3,072 MiB",)
    assert fake_cuda.context == 0  # refused before the device was touched
    assert _run(Options(shared=True)).stopped_by is None


def test_memory_of_nobody_in_particular_is_respected(fake_cuda: FakeCuda) -> None:
    fake_cuda.others = 3 * GIB
    with pytest.raises(CannotRunHere, match=r"3.00 GiB of NVIDIA Fake GPU are taken"):
        _run()


def test_the_own_process_is_nobody_else(fake_cuda: FakeCuda) -> None:
    fake_cuda.processes = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)]
    assert _run().stopped_by is None


def test_a_device_that_is_not_there() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CannotRunHere, match="no CUDA device"):
        open_device("cuda:0")


def test_a_number_beyond_the_devices(fake_cuda: FakeCuda) -> None:
    with pytest.raises(CannotRunHere, match="no GPU 3"):
        open_device("cuda:3")


def test_the_probe_reads_what_nvml_says(fake_cuda: FakeCuda) -> None:
    hardware = probe_cuda(CudaDevice(0))
    assert (hardware.driver, hardware.ecc, hardware.persistence, hardware.mig) == ("580.1", True, False, None)
    assert hardware.context is not None
    assert hardware.runtime_total == 8 * GIB
    assert hardware.nvml_total == 8 * GIB + 400 * MIB
    assert hardware.model_dump()["compute_capability"] == "9.0"


def test_what_differs_from_the_spec_file() -> None:
    spec = load_gpu("h200")
    assert spec.memory_total_bytes is not None
    same = Hardware("NVIDIA H200", "cuda", spec.memory_total_bytes, spec.memory_nvml_bytes, slug=spec.slug,
                    compute_capability=(9, 0), unified_memory=False)  # fmt: skip
    assert compared(same, spec) == ()
    codes = [one.code for one in compared(replace(same, runtime_total=70 * GIB, ecc=False, mig=True), spec)]
    assert codes == ["other-memory", "ecc-off", "mig-on"]
    other = compared(replace(same, slug="a100-sxm-80gb"), spec)
    assert [(one.code, one.severity.value) for one in other] == [("other-gpu", "error")]


def test_refusing_others_names_their_memory() -> None:
    from kvplan.readers.gpus.nvml import NvmlGpu, Process

    gpu = NvmlGpu("G", 80 * GIB, used_bytes=GIB, processes=(Process(7, None), Process(8, 5 * MIB)))
    with pytest.raises(CannotRunHere) as caught:
        refuse_others(gpu, shared=False)
    assert caught.value.detail == ("process 7: memory not told", "process 8: 5 MiB")
    refuse_others(gpu, shared=True)


def test_too_few_requests_refute(fake_cuda: FakeCuda) -> None:
    def make(hardware: Hardware) -> Target:
        target = _target(hardware, max_model_len=1024)
        plan = replace(target.plan, require=Requirements(requests=500, tokens=64))
        return target_of(plan, target.model, target.choice, asks_proof=True, on_gpu=True)

    outcome = run_session(make, Options(), ALONE)
    assert [one.code for one in outcome.findings if one.severity.value == "error"] == ["too-few-requests"]
    assert _receipt(outcome).verdict == REFUTED  # type: ignore[attr-defined]


def test_without_a_pool_on_a_gpu_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeCuda())
    model, choice = load_model("gpt-oss-20b"), choose("vllm")
    with pytest.raises(KvplanError, match="may take is not known"):
        target_of(bare_plan(model, choice, make_settings()), model, choice, asks_proof=False, on_gpu=True)


@pytest.mark.parametrize(
    ("model", "engine"),
    [("deepseek-v2-lite", "sglang"), ("gemma-3-4b", "trtllm"), ("qwen3-30b-a3b", "llamacpp"),
     ("falcon-7b", "transformers")],
)  # fmt: skip
def test_every_engines_tensors_are_predicted_to_the_segment(
    model: str, engine: str, fake_cuda: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_cuda.total = 64 * GIB
    words = ["validate", model, "--engine", engine, "--kv-cache-memory", "96MiB", "--weights", "0B"]
    assert main([*words, "--max-num-batched-tokens", "32", "--max-num-seqs", "4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["kind"]) == ("confirmed", "proof")
    segments = next(one for one in data["receipt"]["figures"] if one["name"] == "pool_reserved_bytes")
    assert segments["predicted"] == segments["measured"] > 0
