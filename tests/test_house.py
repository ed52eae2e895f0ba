"""The house: imports run downward, the library is light, the version is one."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.engines import ENGINES
from kvplan.engines.folders import FOLDERS, part_of

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


NAMES = frozenset(ENGINES) - {"generic", "transformers"}
"""The names of engines that are no word of another meaning (a library's, an adjective)."""


def _constants(file: Path, kind: type[ast.AST]) -> list[str]:
    """Places of a file where an engine's name stands in a node of this kind (itself, or what it compares)."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, kind):
            continue
        inside = [node] if isinstance(node, ast.Constant) else list(ast.walk(node))
        if any(isinstance(one, ast.Constant) and one.value in NAMES for one in inside):
            found.append(f"{file.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def test_no_room_but_engines_says_an_engine_s_name() -> None:
    """Neutral rooms ask an engine's traits and parts; a difference of one engine stands in its folder."""
    package = ROOT / "kvplan"
    files = [file for file in package.rglob("*.py") if not file.is_relative_to(package / "engines")]
    assert len(files) > 300
    assert [place for file in files for place in _constants(file, ast.Constant)] == []


def test_the_shared_files_of_engines_compare_no_engine_s_name() -> None:
    """Lists of engines stand there (which have a folder, which is the default); branches do not."""
    engines = ROOT / "kvplan" / "engines"
    files = [file for file in engines.rglob("*.py") if file.relative_to(engines).parts[0] not in FOLDERS]
    assert [place for file in files for place in _constants(file, ast.Compare)] == []


@pytest.mark.parametrize("engine", FOLDERS)
def test_an_engine_s_folder_has_the_same_names_inside(engine: str) -> None:
    for part in ("engine", "budget", "flags", "command", "options", "traits", "log", "printed", "tensors"):
        assert part_of(engine, part) is not None, part
    assert part_of(engine, "no_such_part") is None
