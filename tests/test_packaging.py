"""The recipes of packaging/ say what pyproject.toml says, and SchemaStore's entry what the schema says."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import kvplan
from kvplan.files.plans.schema import PLAN_ID, plan_schema
from scripts.packaging import FORMULA, RECIPE, main, released

ROOT = Path(__file__).resolve().parents[1]
FORMULA_TEXT = FORMULA.read_text(encoding="utf-8")
BROUGHT = {"pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection"}
"""What Homebrew's own formula of pydantic has."""
NAME = re.compile(r"[A-Za-z0-9._-]+")


def key(requirement: str) -> str:
    """A requirement's name as the index compares it."""
    found = NAME.match(requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def wanted(requirement: str) -> tuple[str, str]:
    """``rich>=13.7`` → rich, 13.7"""
    name, _, least = requirement.partition(">=")
    return key(name), least.strip()


def project() -> dict[str, Any]:
    toml = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # mypy brings tomli
    tomllib = pytest.importorskip(toml)
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    return found


def resources() -> dict[str, str]:
    """Name → version of what the formula brings."""
    found = re.findall(r'resource "([^"]+)" do\n\s+url "[^"]+/[^/]+-([^/-]+)\.tar\.gz"', FORMULA_TEXT)
    assert len(found) == FORMULA_TEXT.count("resource ")
    return {key(name): version for name, version in found}


def test_the_version() -> None:
    assert recipe()["context"]["version"] == kvplan.__version__
    assert f"kvplan-{kvplan.__version__}.tar.gz" in FORMULA_TEXT


def test_conda_wants_what_pip_wants() -> None:
    run = [wanted(one) for one in recipe()["requirements"]["run"]]
    assert sorted(run) == sorted([*map(wanted, project()["dependencies"]), ("python", "${{ python_min }}")])
    extras = {wanted(one) for many in project()["optional-dependencies"].values() for one in many}
    assert {wanted(one) for one in recipe()["requirements"]["run_constraints"]} <= extras
    assert recipe()["about"]["summary"] == project()["description"]
    name, _, entry = recipe()["build"]["python"]["entry_points"][0].partition(" = ")
    assert project()["scripts"] == {name: entry}


def test_homebrew_brings_all_that_is_needed() -> None:
    """Walked from the dependencies of this installation, so that none of theirs is forgotten."""
    needed, left = set[str](), [key(one) for one in project()["dependencies"]]
    while left:
        name = left.pop()
        if name in needed:
            continue
        needed.add(name)
        requires = importlib.metadata.requires(name) or []
        left += [key(one) for one in requires if ";" not in one]
    assert needed - BROUGHT == set(resources())


def test_homebrew_brings_no_older_than_asked_for() -> None:
    for name, least in map(wanted, project()["dependencies"]):
        if name not in BROUGHT:
            have = [int(part) for part in resources()[name].split(".")]
            assert have >= [int(part) for part in least.split(".")]


def test_every_archive_has_a_digest() -> None:
    assert len(re.findall(r'sha256 "[0-9a-f]{64}"', FORMULA_TEXT)) == 1 + len(resources())


def test_a_release_is_written(tmp_path: Path) -> None:
    digest = "ab" * 32
    for path in (RECIPE, FORMULA):
        before = path.read_text(encoding="utf-8")
        text = released(before, "7.8.9", digest)
        assert text.count("7.8.9") == 1
        assert text.count(digest) == 1
        assert len(text.splitlines()) == len(before.splitlines())
        assert released(text, "7.8.9", digest) == text
    assert main([]) == 2


def test_schemastore_finds_the_schema() -> None:
    entry = json.loads((ROOT / "packaging" / "schemastore.json").read_text(encoding="utf-8"))
    assert set(entry) == {"name", "description", "fileMatch", "url"}
    assert entry["url"] == PLAN_ID == plan_schema()["$id"]
    assert entry["name"] == plan_schema()["title"]
    assert any(fnmatch("chat.kvplan.yaml", pattern) for pattern in entry["fileMatch"])
