"""vLLM 0.32's recorded answers for released models, where their configs lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.read import read_config
from kvplan.model import Model
from tests.engines.vllm_compare import ENGINE, figures

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"
RECORD = SHARED / "data" / "vllm_answers.json"
ANSWERS: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else []
pytestmark = pytest.mark.beside

WORDS = {
    "--tp": "tensor_parallel_size",
    "--pp": "pipeline_parallel_size",
    "--dcp": "decode_context_parallel_size",
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size",
    "--num-gpu-blocks-override": "num_gpu_blocks_override",
    "--available-bytes": "kv_cache_memory",
}
TEXTS = {
    "--kv-dtype": "kv_cache_dtype",
    "--usage": "usage",
    "--dtype": "dtype",
    "--mamba-cache-dtype": "mamba_cache_dtype",
    "--mamba-ssm-cache-dtype": "mamba_ssm_cache_dtype",
}
FLAGS: dict[str, tuple[str, bool]] = {
    "--no-prefix-caching": ("enable_prefix_caching", False),
    "--disable-hybrid": ("disable_hybrid_kv_cache_manager", True),
    "--keep-quant": ("keep_quant", True),
}
SLUGS = {"rtx5090": "rtx-5090"}
SAME = {"kv_cache_size_tokens": "kv_tokens", "block_size_after_alignment": "block_size"}


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu": "h100"}
    rest = iter(words)
    for word in rest:
        if word in FLAGS:
            name, value = FLAGS[word]
            found[name] = value
            continue
        given = next(rest)
        if word in WORDS:
            found[WORDS[word]] = int(given)
        elif word in TEXTS:
            found[TEXTS[word]] = given
        elif word == "--available-gib":
            found["kv_cache_memory"] = int(float(given) * 2**30)
        elif word == "--gpu":
            found["gpu"] = given
        elif word == "--speculative-config":
            draft = json.loads(given)
            found["speculative_method"] = draft["method"]
            found["num_speculative_tokens"] = draft["num_speculative_tokens"]
        else:
            raise ValueError(word)
    return found


def _model(name: str, *, keep_quant: bool) -> Model:
    folder = SHARED / "configs" / name
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    beside = None
    if keep_quant:
        file = folder / "hf_quant_config.json"
        beside = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    else:
        for holder in (raw, raw.get("text_config") or {}):
            holder.pop("quantization_config", None)
    return read_config(raw, id=name, source="shared", hf_quant_config=beside)


def _case_id(answer: dict[str, Any]) -> str:
    return " ".join([answer["_case"]["config"], *answer["_case"]["args"]])


@pytest.mark.parametrize("answer", ANSWERS, ids=_case_id)
def test_released_model(answer: dict[str, Any]) -> None:
    options = _options(answer["_case"]["args"])
    options["gpu"] = SLUGS.get(options["gpu"], options["gpu"])
    model = _model(answer["_case"]["config"], keep_quant=options.pop("keep_quant", False))
    result = kvplan.size(model, engine=ENGINE, **options)
    if "error" in answer:
        assert result.refusal is not None
        return
    found = figures(result)
    assert found.pop("groups") == [
        [
            group["layers"],
            group["block_size"],
            group["page_size_bytes"],
            group["blocks_per_request_at_max_model_len"],
        ]
        for group in answer["groups"]
    ]
    assert round(found.pop("max_concurrency"), 4) == answer["max_concurrency"]
    wanted = {SAME.get(name, name): value for name, value in answer.items()}
    assert found == {name: wanted[name] for name in found}
