"""Files that start servers, one folder an ecosystem, and the plans that they come to (``expected.yaml``).

``python -m tests.launch.test_files`` writes what it gives today: to be read before it is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.api.launching import import_launches
from kvplan.errors import KvplanError
from kvplan.files.launch.found import Broken
from kvplan.files.launch.read import is_launch

FILES = Path(__file__).parent / "files"
BESIDE = ("base.yaml", ".env", "settings.env", "llama.env", "engine.yaml", "pyproject.toml")
NAMES = sorted(
    str(path.relative_to(FILES)) for path in FILES.glob("*/*") if path.is_file() and path.name not in BESIDE
)
EXPECTED = FILES / "expected.yaml"


def given(name: str) -> list[dict[str, Any]]:
    """The servers of a file, and what was left out of it."""
    broken: list[Broken] = []
    try:
        launches = import_launches(str(FILES / name), broken=broken)
    except KvplanError as error:
        return [{"error": error.message}]
    found = [
        {
            "server": one.name, "model": one.model, "engine": one.engine,
            **({"replicas": one.replicas} if one.replicas > 1 else {}),
            **{key: value for key, value in (("gpu", one.gpu), ("gpus", one.gpus)) if value is not None},
            "serve": dict(one.serve),
            **({"unread": list(one.unread)} if one.unread else {}),
            **({"notes": list(one.notes)} if one.notes else {}),
            **({"unnamed": one.unnamed.message} if one.unnamed is not None else {}),
        }
        for one in launches
    ]  # fmt: skip
    return [*found, *({"left out": one.name, "error": one.error.message} for one in broken)]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_whole(name: str) -> None:
    if name.startswith("built/") and sys.version_info < (3, 11):
        pytest.skip("Python reads TOML from 3.11 on")
    assert is_launch(str(FILES / name))
    assert given(name) == yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    answers = {name: given(name) for name in NAMES}
    EXPECTED.write_text(
        yaml.safe_dump(answers, sort_keys=False, width=110, allow_unicode=True), encoding="utf-8"
    )
