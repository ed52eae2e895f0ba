"""Every answer follows the schema of ``kvplan size --json``, and the committed schema is the current one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.report.schema import answer_schema
from scripts import make_schemas
from tests.report.schemas import answer_errors

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = answer_schema("size")
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
        assert answer_errors(SCHEMA, dumped) == []
        assert json.loads(json.dumps(dumped, allow_nan=False)) == dumped


def test_a_key_more_or_less_is_found() -> None:
    good = kvplan.size(INPUTS / "llama.json", engine="generic").model_dump()
    for bad in ({**good, "extra": 1}, {key: good[key] for key in good if key != "pool"}):
        assert len(answer_errors(SCHEMA, bad)) == 1


def test_the_committed_schemas_are_current() -> None:
    assert make_schemas.main(["--check"]) == 0


def test_what_the_json_writes_is_what_the_schema_says() -> None:
    """One definition of both: names in the same order, a line under a field as its description."""
    asked: dict[str, Any] = {"max_model_len": 4096, "kv_cache_memory": "4GiB"}
    good = kvplan.size(INPUTS / "llama.json", engine="vllm", **asked).model_dump()
    assert list(good) == [name for name in SCHEMA["properties"] if name not in ("devices", "host", "ways")]
    assert list(good["pool"]) == list(SCHEMA["$defs"]["Pool"]["properties"])
    assert SCHEMA["$defs"]["Request"]["properties"]["tokens"] == {
        "type": "integer",
        "minimum": 0,
        "description": "decoder positions of one request",
    }
    assert SCHEMA["properties"]["devices"]["description"].startswith("where layers are dealt")
    assert "devices" not in SCHEMA["required"]


def test_strict_readers_take_no_float_and_no_yes_for_a_number() -> None:
    good = kvplan.size(INPUTS / "llama.json", engine="generic").model_dump()
    for wrong in (1.0, True, -1, "1", None):
        assert answer_errors(SCHEMA, {**good, "total": {**good["total"], "kv_bytes": wrong}}), wrong
