"""What the planners of five releases of vLLM answered for released models (configs beside the project)."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from kvplan.engines import ENGINES
from kvplan.model import Model
from kvplan.settings import Settings
from tests.engines.test_vllm_shared import SHARED, _model, _options
from tests.engines.vllm_compare import GROUP_FIELDS

RECORD = SHARED / "data" / "vllm_releases_answers.json"
ANSWERS: dict[str, list[dict[str, Any]]] = defaultdict(list)
if RECORD.is_file():
    for one in json.loads(RECORD.read_text(encoding="utf-8")):
        ANSWERS[one["vllm_version"]].append(one)
SETTINGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
pytestmark = pytest.mark.beside


@cache
def _loaded(name: str) -> Model:
    return _model(name, keep_quant=False)


def _wrong(answer: dict[str, Any]) -> dict[str, Any]:
    """What differs: field → (kvplan's, the release's). None: the release was not asked for that figure."""
    options = _options(answer["args"])
    del options["gpu"]  # an H100 is what both take
    version = ".".join(answer["vllm_version"].split(".")[:2])
    result = ENGINES["vllm"].size(_loaded(answer["config"]), Settings(**options), version)
    if result.pool is None:
        return {"refusal": result.refusal}
    ours: dict[str, Any] = {
        **{name: getattr(result.pool, name) for name in ("num_blocks", "bytes_per_block")},
        "kv_cache_size_tokens": result.pool.kv_tokens,
        "max_concurrency": round(result.pool.max_concurrency, 4),
        **{
            name: result.settings[name]
            for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
        },
        "groups": [[getattr(group, name) for name in GROUP_FIELDS] for group in result.pool.groups],
    }
    theirs = {name: answer[name] for name in ours if name != "groups"}
    theirs["groups"] = [
        [
            group["layers"],
            group["block_size"],
            group["page_size_bytes"],
            group["blocks_per_request_at_max_model_len"],
        ]
        for group in answer["groups"]
    ]
    return {name: (ours[name], value) for name, value in theirs.items() if value not in (None, ours[name])}


@pytest.mark.parametrize("version", ANSWERS)
def test_released_models(version: str) -> None:
    """Every figure of every answer of a release."""
    wrong = {
        f"{answer['config']} {' '.join(answer['args'])}": why
        for answer in ANSWERS[version]
        if (why := _wrong(answer))
    }
    assert not wrong
