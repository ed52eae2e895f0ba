"""A refusal is read after "ENGINE would not serve MODEL:", so it says neither of them again."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import kvplan

FILES = sorted(Path(kvplan.__file__).parent.joinpath("engines").rglob("*.py"))


def _messages() -> list[tuple[str, str]]:
    """A file's name and the text that a `Refusal` in it is given, as its source."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                found += [(path.name, ast.unparse(text)) for text in node.args[1:2]]
    return found


def test_no_refusal_introduces_its_model() -> None:
    messages = _messages()
    assert len(messages) > 100
    assert not [
        (name, text)
        for name, text in messages
        if "model.id}:" in text or "serve {model.id}" in text or "does not serve the" in text
    ]


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (
            "Qwen/Qwen3.8-Flash-Next",
            {"engine": "vllm", "tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        ),
        ("Qwen/Qwen3.8-Flash-Next", {"engine": "tgi"}),
        ("deepseek-ai/DeepSeek-V3", {"engine": "tgi"}),
        ("Qwen/Qwen3.5-9B", {"engine": "transformers", "continuous_batching": True}),
    ],
)
def test_the_model_is_named_once(model: str, asked: dict[str, Any]) -> None:
    found = kvplan.size(model, tokens=100, **asked)
    assert found.refusal is not None
    for word in (model, "would not serve", "does not serve", "TGI"):
        assert word not in found.refusal.message
