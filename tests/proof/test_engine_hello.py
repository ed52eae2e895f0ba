"""What an engine's worker says of the device before the engine runs: over stand-ins for vLLM and NVML."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.errors import CannotRunHere
from kvplan.files.gpus.nvml import NvmlGpu
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.gpus import hardware_of
from kvplan.proof.validate.installed.messages import hello_of
from kvplan.proof.validate.installed.question import MASKS, environment
from kvplan.proof.validate.installed.workers import _driver as driver
from kvplan.proof.validate.installed.workers import vllm as worker
from tests.proof.fake_engine import interpreter
from tests.proof.test_engine_run import HERE, PLAN, on_h200, on_plan

pytestmark = pytest.mark.skipif(os.name != "posix", reason="engines run on Linux")
NVML_TOTAL, USED = 150_754_820_096, 648_347_648
UUIDS = ("GPU-0a", "GPU-0b")
GPU = {
    "name": "NVIDIA H200", "total": NVML_TOTAL, "used": USED, "processes": [], "ecc": True, "mig": False,
    "compute_capability": [9, 0], "persistence": True,
}  # fmt: skip
TOLD = {"driver": "580.159.04", "runtime": "CUDA 13.0", "devices": [GPU]}


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


def nvml(pids: tuple[int, ...] = ()) -> ModuleType:
    """Two devices, of which the engine sees the second alone."""

    class NVMLError(Exception):
        pass

    return module(
        "pynvml",
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"580.159.04",
        nvmlDeviceGetCount=lambda: len(UUIDS),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=NVML_TOTAL, used=handle * USED),
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=one) for one in pids],
        nvmlDeviceGetUUID=lambda handle: UUIDS[handle],
        nvmlDeviceGetEccMode=lambda handle: [1, 1],
        nvmlDeviceGetMigMode=lambda handle: [0, 0],
        nvmlDeviceGetPersistenceMode=lambda handle: 1,
    )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What the worker's greeting is with these stand-ins."""

    def greeting(pynvml: ModuleType | None, *, kind: str = "cuda", vendored: Any = None) -> dict[str, Any]:
        version = SimpleNamespace(cuda="13.0" if kind == "cuda" else None, hip=None)
        platform = SimpleNamespace(
            device_type=kind,
            get_device_name=lambda: "NVIDIA H200",
            get_device_total_memory=lambda: NVML_TOTAL,
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        stand_ins = {
            "torch": module("torch", __version__="2.14.0+cu130", version=version),
            "vllm": module("vllm", __version__="0.33.0"),
            "vllm.platforms": module("vllm.platforms", current_platform=platform),
            "vllm.third_party": module("vllm.third_party"),
            "vllm.third_party.pynvml": vendored,
            "pynvml": pynvml,
        }
        for name, made in stand_ins.items():
            monkeypatch.setitem(sys.modules, name, made)
        for name in worker._QUIET:
            monkeypatch.setenv(name, "")
        return worker.hello()

    return greeting


def test_the_driver_tells_of_the_gpu_that_the_engine_sees(engine: Callable[..., dict[str, Any]]) -> None:
    said = engine(nvml((os.getpid(), 77)))["hardware"]
    gpu = {**GPU, "processes": [[77, None]], "compute_capability": (9, 0)}
    assert said == {**TOLD, "devices": [gpu]}


@pytest.mark.parametrize(
    ("mask", "seen"),
    [
        (None, [0, 1]),
        ("1,0", [1, 0]),
        ("GPU-0b", [1]),
        ("GPU-0", []),
        ("0,7,1", [0]),
        ("MIG-a", []),
        ("", []),
    ],
)
def test_the_gpus_under_a_mask_are_seen_in_its_order(mask: str | None, seen: list[int]) -> None:
    gpus = [NvmlGpu("G", 1, uuid=one) for one in UUIDS]
    found = driver.masked(gpus, {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})
    assert found == [gpus[one] for one in seen]


def test_what_others_took_meanwhile_is_told_where_the_driver_names_us(
    engine: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container it names nobody, or by other numbers: nobody can tell."""
    held = {os.getppid(): 0, 1: 5 << 30}
    processes = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in held.items()]
    stand_in: Any = nvml()
    stand_in.nvmlDeviceGetComputeRunningProcesses = lambda handle: processes
    monkeypatch.setattr(driver, "_is_ours", lambda pid: pid == os.getpid())
    engine(stand_in)
    assert driver.grown() is None
    processes.append(SimpleNamespace(pid=os.getpid(), usedGpuMemory=70 << 30))
    assert driver.grown() == 0
    processes[1].usedGpuMemory = 6 << 30
    assert driver.grown() == 1 << 30
    processes[1].usedGpuMemory = None
    assert driver.grown() is None


def test_the_package_that_the_engine_brings_will_do(engine: Callable[..., dict[str, Any]]) -> None:
    assert engine(None, vendored=nvml())["hardware"]["driver"] == "580.159.04"


def test_without_nvml_the_runtime_alone_is_told(engine: Callable[..., dict[str, Any]]) -> None:
    assert engine(None)["hardware"] == {"runtime": "CUDA 13.0"}


def test_of_a_cpu_nothing_is_told(engine: Callable[..., dict[str, Any]]) -> None:
    said = engine(nvml(), kind="cpu")
    assert said["hardware"] == {}
    assert hardware_of(hello_of(said), "cpu")[0].model_dump()["driver"] is None


def test_a_greeting_of_before_has_no_such_fields() -> None:
    (found,) = hardware_of(hello_of({**HERE, "device": "NVIDIA H200", "kind": "cuda"}), "cuda")
    assert (found.driver, found.used, found.ecc, found.compute_capability) == (None, None, None, None)


@pytest.mark.parametrize(
    "wrong", [{"used": "much"}, {"compute_capability": [9]}, {"processes": ["x"]}, {"total": None}]
)
def test_one_that_is_malformed_is_one_error(wrong: Any) -> None:
    for told in ({"devices": [{**GPU, **wrong}]}, [1]):
        with pytest.raises(CannotRunHere, match="cannot be read"):
            hello_of({**HERE, "hardware": told})


def _run(folder: Path, told: dict[str, Any], *more: str) -> tuple[int, dict[str, Any], tuple[str, ...]]:
    says = on_h200()
    says["hello"]["hardware"] = told
    next(values for of, values in says["measured"] if of == "workers")[0]["unified_memory"] = 0
    code, _ = on_plan(folder, says, *more)
    if code == 3:
        return code, {}, ()
    receipt = read_receipt(folder / "evidence" / "chat-h200-sxm-141gb-vllm.json").receipt
    return code, dict(receipt.hardware), receipt.notes


def test_the_receipt_says_on_what_the_engine_ran(tmp_path: Path) -> None:
    code, hardware, notes = _run(tmp_path, TOLD)
    assert code == 0
    assert {name: hardware[name] for name in ("driver", "runtime", "compute_capability", "used_before_bytes",
                                              "ecc", "mig", "persistence", "unified_memory")} == {
        "driver": "580.159.04", "runtime": "CUDA 13.0", "compute_capability": "9.0",
        "used_before_bytes": USED, "ecc": True, "mig": False, "persistence": True, "unified_memory": False,
    }  # fmt: skip
    assert hardware["other_processes"] == 0
    assert not any("other processes" in note for note in notes)  # what the driver reserves is nobody's


@pytest.mark.parametrize("more", [{"used": USED + (4 << 30)}, {"processes": [[77, None]]}])
def test_others_on_the_device_are_refused_or_said(
    more: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {**TOLD, "devices": [{**GPU, **more}]}
    assert _run(tmp_path, told)[0] == 3
    assert "error[gpu-in-use]: other processes" in capsys.readouterr().err
    code, _, notes = _run(tmp_path, told, "--shared")
    assert code == 0
    assert any("other processes" in note for note in notes)


def _two(second: dict[str, Any]) -> dict[str, Any]:
    return {**TOLD, "devices": [GPU, {**GPU, **second}]}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (_two({}), ""),
        (TOLD, "too-few-gpus"),
        (_two({"processes": [[77, 1 << 30]]}), "gpu-in-use"),
        (_two({"name": "NVIDIA H100 80GB HBM3"}), "mixed-gpus"),
        (_two({"total": NVML_TOTAL // 2}), "mixed-gpus"),
        (_two({"used": NVML_TOTAL - (9 << 30)}), "gpu-in-use"),
    ],
)
def test_all_gpus_of_the_plan_are_looked_at_before_the_engine_starts(
    told: dict[str, Any], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a replica of two ranks: how many there are, of which kind, who is on the second."""
    path, asked = tmp_path / "p.yaml", tmp_path / "asked.json"
    two = PLAN.replace("8192}", "8192, tensor_parallel_size: 2}").replace("gpu: h200", "gpu: h200\ngpus: 2")
    path.write_text(two, "utf-8")
    says = {**on_h200(), "asked": str(asked)}
    says["hello"]["hardware"] = told
    python = str(interpreter(tmp_path, says))
    main(["validate", str(path), "--with", "vllm", "--engine-python", python, "--json"])
    said = capsys.readouterr().err
    assert asked.exists() is (not code), said
    assert (f"error[{code}]" in said) is bool(code)


@pytest.mark.parametrize("grown", [0, 1 << 30, None])
def test_what_a_neighbour_takes_under_shared_refutes_nothing(
    grown: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """64 GiB less for the pool: refuted where nobody else took memory, a note where others may have."""
    off = on_h200(off=-(1 << 36))
    off["measured"].append(["others", {"grown": grown}])
    code, _ = on_plan(tmp_path, off, "--shared", "--json")
    data = json.loads(capsys.readouterr().out)
    assert code == data["verdict"].startswith("refuted") == (grown == 0)
    figures = {one["name"]: one for one in data["receipt"]["figures"]}
    for name in ("engine_pool_bytes", "engine_num_blocks", "engine_requests"):
        assert (figures[name]["class"] == "confirmed") is (grown == 0)
    assert figures["engine_blocks_in_its_pool"]["class"] == "confirmed"
    assert any(one["code"] == "neighbours" for one in data["findings"]) is (grown != 0)


def test_no_room_is_said_before_the_engine_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the GPU, in host memory, on the disk."""
    from kvplan.proof.validate.installed import room

    asked = tmp_path / "asked.json"
    held = {**TOLD, "devices": [{**GPU, "used": NVML_TOTAL // 2}]}
    says = {**on_h200(), "asked": str(asked)}
    says["hello"]["hardware"] = held
    assert on_plan(tmp_path, says, "--shared")[0] == 3
    assert "error[no-room]: the engine would need" in capsys.readouterr().err
    says["hello"]["hardware"] = TOLD
    for name, value, said in (
        ("DISK", 1 << 60, "on the disk of"), ("PROCESS", 1 << 60, "in host memory"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(room, name, value)
            assert on_plan(tmp_path, says)[0] == 3
        assert said in " ".join(capsys.readouterr().err.split())
    assert not asked.exists()


@pytest.mark.parametrize(
    ("plan", "driver", "same"),
    [
        ("h200", "NVIDIA A100-SXM4-80GB", False),
        ("rtx-4090-wsl", "NVIDIA GeForce RTX 4090", True),
        ("rtx-4090", "NVIDIA GeForce RTX 4090", True),
        ("rtx-4090-wsl", "NVIDIA GeForce RTX 3090", False),
    ],
)
def test_another_gpu_than_the_plan_s_is_refused_before_the_engine_starts(
    plan: str, driver: str, same: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under WSL the driver says the name of the card alone."""
    path, asked = tmp_path / "p.yaml", tmp_path / "asked.json"
    path.write_text(PLAN.replace("gpu: h200", f"gpu: {plan}").replace("llama-3.1-8b", "qwen3-0.6b"), "utf-8")
    says = {**on_h200(), "asked": str(asked)}
    says["hello"]["device"] = driver
    python = str(interpreter(tmp_path, says))
    code = main(["validate", str(path), "--with", "vllm", "--engine-python", python])
    assert asked.exists() is same
    assert (code == 3) is not same
    assert ("error[other-gpu]" in capsys.readouterr().err) is not same


@pytest.mark.parametrize(
    ("mask", "gpu", "seen"),
    [
        ({}, 1, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, 1, {"CUDA_VISIBLE_DEVICES": "5"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa,MIG-bb"}, 1, {"CUDA_VISIBLE_DEVICES": "MIG-bb"}),
        ({"HIP_VISIBLE_DEVICES": "2, 3"}, 0, {"HIP_VISIBLE_DEVICES": "2"}),
        ({"CUDA_VISIBLE_DEVICES": "4"}, None, {}),
    ],
)
def test_a_mask_of_gpus_is_respected(
    mask: dict[str, str], gpu: int | None, seen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in mask.items():
        monkeypatch.setenv(name, value)
    if mask.get("CUDA_VISIBLE_DEVICES") == "4,5":
        assert environment("cuda", 0, count=2)["CUDA_VISIBLE_DEVICES"] == "4,5"
        with pytest.raises(CannotRunHere, match="there is no GPU 2"):
            environment("cuda", 1, count=2)
    found = environment("cuda", gpu)
    assert {name: value for name, value in found.items() if name in MASKS} == seen
    if mask and gpu is not None:
        with pytest.raises(CannotRunHere, match="there is no GPU 7"):
            environment("cuda", 7)
