"""Checkpoints of another program: told by their config, and no pool is made of their bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.weights.stored import foreign_method
from tests.test_api import LLAMA

FOUR = {"group_size": 64, "bits": 4}
GPTQ = {"bits": 4, "group_size": 128, "damp_percent": 0.01, "desc_act": False}


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization": FOUR}, "mlx"),
        ({"quantization": FOUR, "quantization_config": FOUR}, "mlx"),
        ({"quantization_config": {**FOUR, "mode": "affine", "model.layers.0.mlp.gate": {"bits": 8}}}, "mlx"),
        ({"quantization_config": {**FOUR, "lm_head": False}}, "mlx"),
        ({"quantization_config": {"quant_method": "exl2", "bits": 4.0}}, "exl"),
        ({"quantization_config": GPTQ}, None),
        ({"quantization_config": {"quant_method": "awq", **FOUR}}, None),
        ({"quantization_config": {"quant_method": "fp8"}}, None),
        ({"quantization_config": {"bits": True, "group_size": 64}}, None),
        ({"quantization_config": {"bits": "4", "group_size": 64}}, None),
        ({"quantization": [4], "quantization_config": None}, None),
        ({"quantization": {"quant_algo": "FP8"}}, None),
        ({}, None),
    ],
)
def test_a_config_says_whose_format_it_is(config: dict[str, Any], method: str | None) -> None:
    assert foreign_method(config) == method


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp", "tgi"])
def test_its_files_make_no_pool(engine: str, tmp_path: Path) -> None:
    """The bytes of the files are known, and still nobody but MLX loads them."""
    config = {**LLAMA, "intermediate_size": 14336, "vocab_size": 128256, "quantization_config": FOUR}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header = json.dumps(
        {"lm_head.weight": {"dtype": "U32", "shape": [8, 8], "data_offsets": [0, 256]}}
    ).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(256)
    (tmp_path / "model.safetensors").write_bytes(data)
    answer = kvplan.size(tmp_path, engine=engine, gpu="h100", tokens=4096)
    assert answer.budget is None
    assert answer.total.kv_bytes_per_request > 0
    assert any("MLX's format, which MLX alone loads" in text for text in answer.warnings)
