"""Models that transformers builds on the meta device, for types without an inventory rule."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.architectures.config.read import read_config
from kvplan.architectures.weights import sources_of_config
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.files.meta_model import tensors_on_meta
from kvplan.weights.facts import weights_per_rank
from kvplan.weights.ranks import ALONE, Parallel
from tests.weights.checkpoints import TINY_LLAMA, llama_tensors

pytest.importorskip("torch", reason="the extra gpu is not installed")
pytest.importorskip("transformers", reason="the extra hf is not installed")

TINY_MT5: dict[str, Any] = {
    "model_type": "mt5",
    "architectures": ["MT5ForConditionalGeneration"],
    "d_model": 64,
    "d_ff": 128,
    "d_kv": 8,
    "num_heads": 8,
    "num_layers": 2,
    "vocab_size": 1024,
}


def test_the_library_names_a_llama_as_its_checkpoints_do() -> None:
    names = {tensor.name: tensor.shape for tensor in tensors_on_meta(TINY_LLAMA).tensors}
    assert names == {tensor.name: tensor.shape for tensor in llama_tensors(TINY_LLAMA)}


def test_a_type_without_a_rule_is_counted_and_divided_by_names() -> None:
    built = tensors_on_meta(TINY_MT5)
    model = read_config(TINY_MT5, id="mt5", source="dict")
    sources = sources_of_config(TINY_MT5, found=built, model=model)
    whole = weights_per_rank(sources, ALONE, BFLOAT16)
    assert whole.source == "parameter count"
    assert whole.total_bytes == 2 * sum(tensor.elements for tensor in built.tensors)
    half = weights_per_rank(sources, Parallel(2), BFLOAT16)
    assert whole.total_bytes < 2 * half.bytes_per_gpu < whole.total_bytes * 1.05


def test_what_the_library_cannot_build_is_refused() -> None:
    with pytest.raises(KvplanError) as caught:
        tensors_on_meta({"model_type": "not_a_type_anyone_knows"})
    assert caught.value.code == "no-weights"
