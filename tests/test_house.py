"""The house: imports run downward, the library is light, the version is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_import_contracts() -> None:
    linter = pytest.importorskip("importlinter.cli", reason="import-linter is not installed")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_importing_the_library_is_light() -> None:
    """import kvplan reaches no terminal, no YAML, no pydantic, no torch."""
    heavy = "typer rich yaml pydantic torch transformers click huggingface_hub gguf numpy"
    code = f"import sys, kvplan; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_everything_public_is_there() -> None:
    import kvplan

    for name in kvplan.__all__:
        assert getattr(kvplan, name) is not None
    with pytest.raises(AttributeError):
        _ = kvplan.no_such_name
