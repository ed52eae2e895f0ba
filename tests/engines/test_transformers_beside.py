"""Measured answers of transformers 5.23.0 that lie beside the checkout, class-default sizes too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import kvplan

ANSWERS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "transformers_answers.json"
NO_FORMULA = {"reformer"}

pytestmark = pytest.mark.beside


@lru_cache(maxsize=1)
def _records() -> dict[str, list[dict[str, Any]]]:
    answers: dict[str, list[dict[str, Any]]] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


def _decoders(kind: str) -> Iterator[dict[str, Any]]:
    for record in _records()[kind]:
        if record["kind"] == "causal" and record.get("ok") and record["model_type"] not in NO_FORMULA:
            yield record


def _wrong(record: dict[str, Any], config: dict[str, Any]) -> list[str]:
    model = kvplan.load_model({**config, "architectures": [record["class"]]})
    found = []
    for run in [*record["runs"], *record.get("float32_runs", [])]:
        result = kvplan.size(
            model,
            engine="transformers@5.23",
            tokens=run["seq_len"],
            requests=run["batch"],
            dtype=run["dtype"],
        )
        if result.per_gpu.kv_bytes != run["bytes"]:
            found.append(
                f"{record['model_type']} {run['seq_len']} {run['dtype']}:"
                f" {result.per_gpu.kv_bytes}, measured {run['bytes']}"
            )
        if run.get("phase") == "prefill" and result.per_gpu.peak_bytes != max(
            run["bytes"], run["storage_bytes"]
        ):
            found.append(f"{record['model_type']} {run['seq_len']}: peak {result.per_gpu.peak_bytes}")
    return found


def test_small_models() -> None:
    records = list(_decoders("small"))
    assert len(records) >= 50
    assert not [line for record in records for line in _wrong(record, record["config"])]


def test_class_defaults() -> None:
    records = list(_decoders("full_default"))
    assert len(records) >= 30
    wrong = []
    for record in records:
        asked = {"model_type": record["model_type"], **(record.get("config_overrides") or {})}
        wrong += _wrong(record, asked)
    assert not wrong


# The measurement left out what these classes hold elsewhere than in the static cache that it passed.
STATIC_NOT_USED = {"mamba", "mamba2", "falcon_mamba", "recurrent_gemma"}


def test_static_caches() -> None:
    wrong = []
    for record in _decoders("small"):
        measured = record.get("static_cache_64")
        if not measured or not measured["bytes"] or record["model_type"] in STATIC_NOT_USED:
            continue
        result = kvplan.size(
            {**record["config"], "architectures": [record["class"]]},
            engine="transformers@5.23",
            tokens=40,
            max_model_len=64,
            requests=2,
            dtype="bfloat16",
            settings={"cache_implementation": "static"},
        )
        if result.per_gpu.kv_bytes != measured["bytes"]:
            wrong.append(
                (record["model_type"], record["variant"], result.per_gpu.kv_bytes, measured["bytes"])
            )
    assert not wrong
