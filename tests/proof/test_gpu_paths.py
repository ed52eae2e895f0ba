"""The paths of a GPU, over a torch.cuda that is faked: they run, add up, refuse and let go."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.api import load_gpu, load_model, make_settings
from kvplan.cli import main
from kvplan.engines.budget import choose
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.plans.plan import Requirements
from kvplan.plans.receipt import CONFIRMED, PROOF, REFUTED, STOPPED, Receipt
from kvplan.proof.validate.devices import CudaDevice, is_out_of_memory, open_device
from kvplan.proof.validate.probe import Hardware, compared, probe_cuda, refuse_others
from kvplan.proof.validate.rank_run import Options
from kvplan.proof.validate.ranks import World
from kvplan.proof.validate.receipts import receipt_of
from kvplan.proof.validate.session import Outcome, run_session
from kvplan.proof.validate.target import Target, bare_plan, target_of
from tests.proof.fake_cuda import GIB, MIB, WORKSPACE, FakeCuda, fake_cuda, install

__all__ = ["fake_cuda"]
POOL = 64 * MIB
ALONE = World({})
OPTIONS = Options()


def _target(hardware: Hardware, name: str = "gpt-oss-20b", engine: str = "vllm", **options: object) -> Target:
    settings = make_settings(**{"kv_cache_memory": POOL, "weights": 40 * MIB, "max_num_batched_tokens": 64,
                                "max_num_seqs": 8, **options})  # fmt: skip
    model, choice = load_model(name), choose(engine)
    plan = bare_plan(model, choice, settings)
    return target_of(plan, model, choice, asks_proof=False, on_gpu=hardware.kind != "cpu",
                     changes={"kv_cache_memory": settings.kv_cache_memory})  # fmt: skip


def _run(options: Options = OPTIONS, **settings: Any) -> Outcome:
    return run_session(lambda hardware: _target(hardware, **settings), options, ALONE)


def _receipt(outcome: Outcome) -> Receipt:
    return receipt_of(outcome, created="2026-01-02T03:04:05Z")


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
    for name in ("context_bytes", "token_slots", "token_slots_used"):
        assert found[name].predicted is None, name
    assert found["driver_reserved_bytes"].measured == 400 * MIB
    receipt = _receipt(outcome)
    assert (receipt.kind, receipt.verdict) == (PROOF, CONFIRMED)


def test_a_pool_without_weights_says_so(fake_cuda: FakeCuda) -> None:
    said = "no weights lie beside the pool: the figures are of the cache alone"
    assert said in _run(weights=0).notes
    fake_cuda.context = 0  # another process
    assert said not in _run().notes


def test_everything_is_released_after_a_run(fake_cuda: FakeCuda) -> None:
    outcome = _run()
    assert outcome.stopped_by is None
    gc.collect()
    assert fake_cuda.requested == 0
    assert fake_cuda.reserved == 0
    assert fake_cuda.workspaces == []


def _runs_out(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, during: str, error: Exception
) -> Callable[[str], None]:
    """The device has less than it says: allocations fail in a stage though the room was checked."""
    stage, malloc = ["start"], fake_cuda.malloc

    def less(size: int) -> Any:
        if stage[0] == during:
            raise error
        return malloc(size)

    monkeypatch.setattr(fake_cuda, "malloc", less)
    return lambda name: stage.__setitem__(0, name)


SHORTAGES = (
    "CUDA out of memory. Tried to allocate 64.00 MiB.\nmore",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
)


def _shortage(text: str) -> Exception:
    import torch

    return torch.OutOfMemoryError(text) if text.startswith("CUDA out of") else RuntimeError(text)


@pytest.mark.parametrize(("stage", "text"), [("weights", SHORTAGES[1]), ("pool", SHORTAGES[0])])
def test_memory_that_runs_out_for_what_was_predicted_refutes(
    stage: str, text: str, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = _runs_out(fake_cuda, monkeypatch, stage, _shortage(text))
    outcome = run_session(_target, OPTIONS, ALONE, on_stage=at)
    assert (outcome.stopped_by, outcome.stopped_at) == ("memory", stage)
    assert _receipt(outcome).verdict == REFUTED
    gc.collect()
    assert fake_cuda.requested == 0
    assert text.splitlines()[0] in outcome.notes


def test_memory_that_runs_out_for_what_kvplan_does_proves_nothing_and_refutes_nothing(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and pool were there; reading back takes buffers of kvplan's own."""
    at = _runs_out(fake_cuda, monkeypatch, "cache in use", _shortage(SHORTAGES[0]))
    outcome = run_session(_target, OPTIONS, ALONE, on_stage=at)
    receipt = _receipt(outcome)
    assert (receipt.verdict, receipt.stopped_at, receipt.stopped_by) == (STOPPED, "cache in use", "memory")
    assert {"weights_bytes", "pool_reserved_bytes"} <= {figure.name for figure in receipt.figures}
    gc.collect()
    assert fake_cuda.requested == 0


def test_what_is_memory_and_what_is_not() -> None:
    for text in SHORTAGES:
        assert is_out_of_memory(_shortage(text)), text
    assert is_out_of_memory(RuntimeError("HIP error: hipErrorOutOfMemory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("out of memory"))
    behind = RuntimeError("operation failed due to a previous error during capture")
    behind.__context__ = _shortage(SHORTAGES[0])
    assert is_out_of_memory(behind)


@pytest.mark.parametrize(
    ("workspace", "cleared"),
    [(WORKSPACE, True), (WORKSPACE, False), (32 * MIB, False), (128 * 1024, False)],
)
def test_the_matrix_librarys_workspace_changes_no_prediction(
    workspace: int, cleared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default it lies in a segment of 20 MiB whose rest serves other tensors."""
    cuda = install(monkeypatch, FakeCuda(workspace=workspace))
    if not cleared:
        import torch

        monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces")
    outcome = _run()
    for figure in outcome.figures:
        if figure.name.endswith("_reserved_bytes") and figure.allowed_ppm is not None:
            assert figure.predicted == figure.measured, figure
    assert _receipt(outcome).verdict == CONFIRMED
    assert bool(cuda.workspaces) is not cleared
    found = {figure.name: figure for figure in outcome.figures}
    assert found["context_bytes"].measured == 500 * MIB


def test_weights_leave_room_that_the_pool_fills(fake_cuda: FakeCuda) -> None:
    """Rests of the weights' segments serve an engine's many tensors."""
    outcome = run_session(
        lambda hardware: _target(hardware, "falcon-7b", "transformers", requests=2, tokens=64,
                                 weights=31 * MIB),
        OPTIONS, ALONE,
    )  # fmt: skip
    found = {figure.name: figure for figure in outcome.figures}
    pool = found["pool_reserved_bytes"]
    assert pool.predicted == pool.measured
    assert _receipt(outcome).verdict == CONFIRMED


@pytest.mark.parametrize("stage", ["weights", "cache in use"])
def test_a_fault_keeps_what_was_measured_and_its_own_name(stage: str, fake_cuda: FakeCuda) -> None:
    """The first error is raised, not one of letting go on a device that is broken."""
    kept: list[Outcome] = []

    def at(name: str) -> None:
        if name == stage:
            fake_cuda.fault = "an illegal memory access was encountered"

    with pytest.raises(RuntimeError, match="an illegal memory access") as caught:
        run_session(_target, OPTIONS, ALONE, on_stage=at, settled=kept.append)
    assert caught.value.__context__ is None
    (outcome,) = kept
    receipt = _receipt(outcome)
    assert (receipt.verdict, receipt.stopped_by, receipt.stopped_at) == (STOPPED, "fault", stage)
    assert any(figure.name == "runtime_total_bytes" for figure in receipt.figures)
    assert any("illegal memory access" in note for note in receipt.notes)


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
    assert _receipt(outcome).verdict == REFUTED


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
    assert (found["limit_requests"].measured or 0) > (found["requests"].measured or 0)
    assert found["limit_pool_bytes"].predicted is None  # nothing foretells it


def test_the_reserve_bounds_the_limit(fake_cuda: FakeCuda) -> None:
    fake_cuda.total = 2 * GIB
    outcome = _run(Options(find_limit=True, reserve=GIB))
    limit = next(one.measured for one in outcome.figures if one.name == "limit_pool_bytes")
    assert limit is not None
    assert limit <= GIB - 500 * MIB
    assert any("--reserve" in note for note in outcome.notes)


def test_too_little_room_is_refused_with_a_pool_that_fits(fake_cuda: FakeCuda) -> None:
    fake_cuda.total = 930 * MIB
    with pytest.raises(CannotRunHere) as caught:
        _run(Options(reserve=100 * MIB))
    assert caught.value.code == "no-room"
    help_line = caught.value.help[0]
    size = help_line.rpartition(" ")[2]
    fake_cuda.context = 0  # another process
    fitting = _run(Options(reserve=100 * MIB), kv_cache_memory=size)
    assert fitting.stopped_by is None


def test_what_the_driver_reserves_is_no_other_process(fake_cuda: FakeCuda) -> None:
    """Of a small card it is more than one part in fifty: NVML counts it as used."""
    from kvplan.files.gpus.nvml import NvmlGpu

    t4 = NvmlGpu("Tesla T4", 16_106_127_360, used_bytes=460 * MIB)
    refuse_others(t4, shared=False)
    with pytest.raises(CannotRunHere):
        refuse_others(replace(t4, used_bytes=GIB), shared=False)
    with pytest.raises(CannotRunHere):  # of a name that no spec file has nothing is known
        refuse_others(replace(t4, name="NVIDIA Fake GPU"), shared=False)


@pytest.mark.parametrize(
    ("off", "said"),
    [
        (65_536, None),
        (-MIB, None),
        (3 * MIB, "GiB, 3 MiB more than"),
        (-2 * GIB, "2,048 MiB less than"),
    ],
)
def test_totals_that_differ_by_pages_are_not_worth_a_word(off: int, said: str | None) -> None:
    spec = load_gpu("h200-sxm-141gb")
    assert spec.memory_total_bytes is not None
    hardware = Hardware("NVIDIA H200", "cuda", runtime_total=spec.memory_total_bytes + off)
    found = compared(hardware, spec)
    if said is None:
        assert not found
    else:
        assert said in found[0].message
        assert found[0].severity.value == ("warning" if off == -2 * GIB else "note")


def test_other_processes_are_respected(fake_cuda: FakeCuda) -> None:
    fake_cuda.processes = [SimpleNamespace(pid=1, usedGpuMemory=3 * GIB)]
    fake_cuda.others = 3 * GIB
    with pytest.raises(CannotRunHere, match="1 other process runs on NVIDIA Fake GPU") as caught:
        _run()
    assert caught.value.detail == ("process 1: 3,072 MiB",)
    assert fake_cuda.context == 0  # refused before the device was touched
    assert _run(Options(shared=True)).stopped_by is None


@pytest.mark.parametrize("named", [True, False])
def test_what_a_neighbour_takes_under_shared_is_no_refutation(
    named: bool, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told apart by the driver's processes it is left out, and the device still decides; else the device's
    figures are reported."""
    from kvplan.proof.validate.memory import allocate

    neighbour = SimpleNamespace(pid=1, usedGpuMemory=0)
    own = SimpleNamespace(pid=os.getpid(), usedGpuMemory=500 * MIB)
    fake_cuda.processes = [own, neighbour] if named else []

    def beside(*words: Any) -> Any:
        fake_cuda.others = neighbour.usedGpuMemory = GIB
        return allocate(*words)

    monkeypatch.setattr("kvplan.proof.validate.stages.pool.allocate", beside)
    outcome = _run(Options(shared=True))
    receipt = _receipt(outcome)
    assert receipt.verdict == CONFIRMED, [one for one in receipt.figures if not one.agrees]
    device = [one for one in receipt.figures if one.name.startswith("device_")]
    assert {one.evidence for one in device} == ({"confirmed"} if named else {"reported"})
    said = "other processes took 1.00 GiB" if named else "does not say whose memory is whose"
    assert any(said in note for note in receipt.notes)
    assert receipt.hardware["shared"] is True


def test_a_pool_that_a_neighbour_leaves_no_room_for_is_not_refuted(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shared, verdict in ((True, STOPPED), (False, REFUTED)):
        with monkeypatch.context() as patch:
            at = _runs_out(fake_cuda, patch, "pool", _shortage(SHORTAGES[0]))
            outcome = run_session(_target, Options(shared=shared), ALONE, on_stage=at)
        fake_cuda.context = 0  # another process
        assert _receipt(outcome).verdict == verdict
        assert outcome.stopped_at == "pool"


def test_memory_of_nobody_in_particular_is_respected(fake_cuda: FakeCuda) -> None:
    fake_cuda.others = 3 * GIB
    with pytest.raises(CannotRunHere, match=r"3.00 GiB of NVIDIA Fake GPU are taken"):
        _run()


def test_without_nvml_the_runtime_says_what_others_hold(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMD, MIG slices, containers without the package: nobody is named, and memory is missing."""
    monkeypatch.setattr("kvplan.proof.validate.probe.nvml_entry", lambda index: None)
    found = _run()
    assert found.stopped_by is None
    assert found.hardware.model_dump()["other_processes"] is None  # nobody told, which is not none
    fake_cuda.others = 3 * GIB
    with pytest.raises(CannotRunHere, match=r"GiB of NVIDIA Fake GPU are taken: by others"):
        _run()
    assert _run(Options(shared=True)).stopped_by is None


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
    from kvplan.files.gpus.nvml import NvmlGpu, Process

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
    assert _receipt(outcome).verdict == REFUTED


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
    assert main([*words, "--max-num-seqs", "4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["kind"]) == ("confirmed", "proof")
    segments = next(one for one in data["receipt"]["figures"] if one["name"] == "pool_reserved_bytes")
    assert segments["predicted"] == segments["measured"] > 0
