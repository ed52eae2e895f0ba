"""The data file of assumptions, and what is wrong with broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.files.speed import FILE, read_assumptions, speed_assumptions
from kvplan.files.yaml.strict import load_yaml_file
from scripts.speed_schema import table_errors


def test_every_packaged_assumption_has_a_source() -> None:
    table = speed_assumptions()
    assert len(table.by_name) > 30
    assert all(entry.source and entry.value > 0 for entry in table.by_name.values())
    assert speed_assumptions() is table
    assert table_errors(load_yaml_file(FILE)) == []


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(kvplan.KvplanError, match="no 'memory_eficiency'") as caught:
        speed_assumptions()["memory_eficiency"]
    assert caught.value.help == ("did you mean 'memory_efficiency'?",)
    assert "memory_efficiency" in speed_assumptions()


def test_given_values_say_so() -> None:
    table = speed_assumptions().replaced(memory_efficiency=0.5, host_seconds__vllm=1e-3)
    assert table["memory_efficiency"].value == 0.5
    assert table["host_seconds.vllm"].source == "given"
    assert speed_assumptions()["memory_efficiency"].source != "given"


GOOD = 'kvplan: speed/v1\nassumptions:\n  a: {value: 0.5, unit: share, source: "a page"}\n'


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("speed/v1", "speed/v2", "speed/v1"),
        ("0.5", "0", "greater than 0"),
        ("0.5", "1.5", "at most 1"),
        ("0.5", "half", "a number"),
        ("share", "shares", "must be 'share'"),
        ('source: "a page"', 'source: ""', "source"),
        ("source:", "sauce:", "sauce"),
        ("assumptions:", "assumption:", "assumption"),
    ],
)
def test_broken_files_say_where(tmp_path: Path, old: str, new: str, match: str) -> None:
    path = tmp_path / "speed.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert table_errors(load_yaml_file(path, name=path.name)) == []
    assert read_assumptions(load_yaml_file(path, name=path.name))["a"].value == 0.5
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    errors = table_errors(load_yaml_file(path, name=path.name))
    assert any(match in error.message for error in errors)
    assert all("speed.yaml" in (error.where or "") for error in errors)
