"""Every answer follows the schema of ``kvplan size --json``, and the committed schema is the current one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.report.schema import validate_size
from scripts import make_schemas

pydantic = pytest.importorskip("pydantic")

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests" / "cli" / "golden" / "inputs"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tokens": 0},
    {"tokens": 100, "requests": 7, "kv_cache_dtype": "q8_0"},
    {"tokens": 1000, "kv_cache_memory": "1GiB"},
    {"kv_cache_memory": "1MiB"},
    {"tokens": 4096, "tp": 2, "pp": 2, "kv_cache_memory": "2GiB"},
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("config", sorted(INPUTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_answer_follows_the_schema(config: Path, engine: str) -> None:
    model = kvplan.load_model(config)
    for options in OPTIONS:
        try:
            result = kvplan.size(model, engine=engine, **options)
        except KvplanError:
            continue  # an engine may not take a dtype or a parallel size: tested elsewhere
        dumped = result.model_dump()
        validate_size(dumped)
        assert json.loads(json.dumps(dumped, allow_nan=False)) == dumped


def test_a_key_more_or_less_is_found() -> None:
    good = kvplan.size(INPUTS / "llama.json", engine="generic").model_dump()
    for bad in ({**good, "extra": 1}, {key: good[key] for key in good if key != "pool"}):
        with pytest.raises(pydantic.ValidationError):
            validate_size(bad)


def test_the_committed_schemas_are_current() -> None:
    assert make_schemas.main(["--check"]) == 0
