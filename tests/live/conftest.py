"""The interpreter that runs a real llama.cpp."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter that has llama-cpp-python 0.3.36; skips where there is none."""
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    found = os.environ.get("KVPLAN_LLAMACPP_PYTHON", sys.executable)
    code = "import importlib.metadata as m; print(m.version('llama-cpp-python'))"
    said = subprocess.run([found, "-c", code], capture_output=True, text=True)
    if said.returncode or said.stdout.strip() != "0.3.36":
        pytest.skip("llama-cpp-python 0.3.36 is not installed (KVPLAN_LLAMACPP_PYTHON names its interpreter)")
    return found
