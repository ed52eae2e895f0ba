"""The classes that engines build: one file of data, whose every name is the name of a class."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines import ENGINES, OPTIONS_OF
from kvplan.engines.supported import CLASSES, classes, read_rows, rows_text

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "hidden_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
ROWS = read_rows(CLASSES.read_text(encoding="utf-8"))
RELEASE = re.compile(r"\d+\.\d+|")


def test_every_name_is_that_of_a_class() -> None:
    for row in ROWS:
        assert re.fullmatch(r"[A-Z][A-Za-z0-9_]*", row.name, re.ASCII), row
        assert row.engine in OPTIONS_OF
        assert RELEASE.fullmatch(row.since), row
        assert RELEASE.fullmatch(row.until), row
    assert len({row[:3] for row in ROWS}) == len(ROWS)
    assert rows_text(ROWS) == CLASSES.read_text(encoding="utf-8")


def test_classes_stand_in_the_data_alone() -> None:
    """No list of class names grows in the code of an engine again."""
    for path in sorted(Path(kvplan.__file__).parent.joinpath("engines").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = re.findall(r"\b[A-Z]\w+For(?:CausalLM|ConditionalGeneration)\b", node.value)
                assert len(names) <= 12 or "adapters" in path.name, (path.name, names[:3])


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.19", "llamacpp", "trtllm"])
@pytest.mark.parametrize("name", ["NotAClass", "head_dim", "t5", "norm1", "default", "flow_lm.bos_emb"])
def test_what_is_no_class_is_refused(engine: str, name: str) -> None:
    found = kvplan.size({**LLAMA, "architectures": [name]}, engine=engine, tokens=100)
    assert found.refusal is not None
    assert found.refusal.code == "unsupported-model"


@pytest.mark.parametrize("engine", sorted(OPTIONS_OF))
def test_a_class_that_is_served_is_not_refused(engine: str) -> None:
    found = kvplan.size({**LLAMA, "architectures": ["LlamaForCausalLM"]}, engine=engine, tokens=100)
    assert found.refusal is None


def test_releases() -> None:
    """A class with states, which transformers cannot lend, is refused before the release that brought it."""
    row = classes("vllm", "generates")["KimiLinearForCausalLM"]
    major, minor = row.since.split(".")
    early = kvplan.size("kimi-linear-48b-a3b", engine=f"vllm@{major}.{int(minor) - 1}", tokens=100)
    assert early.refusal is not None
    assert early.refusal.help == (f"use engine vllm@{row.since}",)
    assert kvplan.size("kimi-linear-48b-a3b", engine=f"vllm@{row.since}", tokens=100).refusal is None


@pytest.mark.parametrize("model", ["qwen3-next-80b-a3b", "falcon-h1-7b"])
def test_sglang_says_one_verdict(model: str) -> None:
    """A class that it lacks is refused, or runs through transformers: never both."""
    loaded = kvplan.load_model(model)
    config = {**dict(loaded.config or {}), "architectures": ["Qwen5NextForCausalLM"]}
    found = kvplan.size(config, engine="sglang", tokens=100)
    through = any("through transformers" in text for text in found.warnings)
    assert (found.refusal is not None) != through
    assert found.refusal is not None


def test_every_engine_of_the_data_is_known() -> None:
    assert {row.engine for row in ROWS} <= set(ENGINES)
