"""``kvplan doctor``: always answers, tells versions, never a secret."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from kvplan.files.gpus.nvml import read_nvml
from kvplan.version import __version__
from tests.cli.conftest import Run


def test_everything_is_told(run: Run) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith(f"kvplan {__version__} on ")
    for word in ("pydantic", "transformers", "model cards", "GPU specs", "vLLM", "config file: none"):
        assert word in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_as_json(run: Run) -> None:
    data = json.loads(run("doctor", "--json").out)
    assert data["schema_version"] == 1
    assert data["kvplan"] == __version__
    assert data["python"] == sys.version.split()[0]
    assert data["data"]["model_cards"]["count"] > 200
    assert len(data["data"]["gpu_specs"]["fingerprint"]) == 12
    assert data["engines"]["vllm"][-1] == "0.33"
    assert {"hf", "gpu", "mcp"} == set(data["extras"])


def test_settings_in_force_without_secrets(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("engine: vllm@0.19\nmax-model-len: 8k\n", encoding="utf-8")
    environment = {
        "KVPLAN_CONFIG": str(config),
        "KVPLAN_TP": "2",
        "KVPLAN_TOKEN": "secret",
        "KVPLAN_DTYPE": "float16",
    }
    ran = run("doctor", environment=environment)
    assert "secret" not in ran.out
    assert "KVPLAN_TOKEN=(set)" in ran.out
    assert "KVPLAN_DTYPE=float16" in ran.out
    assert "max_model_len: 8192" in ran.out
    data = json.loads(run("doctor", "--json", environment=environment).out)
    assert data["config"]["values"] == {"engine": ["vllm@0.19"], "max_model_len": 8192}
    assert "secret" not in json.dumps(data)


@pytest.mark.parametrize("text", ["engine: [", "nonsense: 1\n", "- a\n"])
def test_a_broken_config_file_is_a_line(run: Run, text: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text, encoding="utf-8")
    ran = run("doctor", environment={"KVPLAN_CONFIG": str(config)})
    assert ran.code == 0
    assert "config file:" in ran.out
    missing = run("doctor", environment={"KVPLAN_CONFIG": str(tmp_path / "none.yaml")})
    assert missing.code == 0
    assert "not a file" in " ".join(missing.out.split())


class _NVMLError(Exception):
    pass


def _fake(**changes: Any) -> types.ModuleType:
    """pynvml with two devices, the second of which does not tell its capability."""
    module = types.ModuleType("pynvml")

    def capability(handle: int) -> tuple[int, int]:
        if handle:
            raise _NVMLError("not supported")
        return (9, 0)

    members: dict[str, Any] = {
        "NVMLError": _NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=150754820096),
        "nvmlDeviceGetCudaComputeCapability": capability,
        **changes,
    }
    for name, member in members.items():
        setattr(module, name, member)
    return module


def test_gpus_of_this_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _fake())
    ran = run("doctor")
    assert "GPUs, driver 580.95.05" in ran.out
    assert "NVIDIA H200" in ran.out
    assert "140.40 GiB" in ran.out
    assert "capability 9.0" in ran.out
    assert read_nvml().gpus[1].compute_capability is None


def _failing() -> None:
    raise _NVMLError("Driver Not Loaded")


def told(run: Run) -> str:
    return " ".join(run("doctor").out.split())


def test_no_driver_and_no_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _fake(nvmlInit=_failing))
    assert "no NVIDIA driver answers: Driver Not Loaded" in told(run)
    monkeypatch.setitem(sys.modules, "pynvml", _fake(nvmlDeviceGetCount=_failing))
    assert "does not answer" in told(run)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py, which is not installed" in told(run)
