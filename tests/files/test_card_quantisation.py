"""No card of a checkpoint that is published quantised counts it as if it were not."""

from __future__ import annotations

import re
from functools import cache

import pytest

from kvplan.architectures.config.view import split_quant
from kvplan.architectures.inventory import inventory_of
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.weights.facts import WeightSources, weights_per_rank
from kvplan.weights.ranks import ALONE
from tests.laws.sampling import for_each
from tests.packaged import packaged_cards

NATIVE = re.compile(
    r"""deepseek-ai/DeepSeek-(V3|V4|R1(?!-Distill|.*Qwen))   # FP8 in blocks of 128; V4 with MXFP4 experts
      | MiniMaxAI/MiniMax-M2(\.|$)                      # FP8 in blocks of 128
      | moonshotai/Kimi-K2-(Instruct|Base)              # FP8 in blocks of 128
      | moonshotai/Kimi-K(2-Thinking|2\.5|3)            # INT4 experts, MXFP4 in K3
      | openai/gpt-oss                                  # MXFP4 experts
      | mistralai/Devstral-(Small-)?2-                  # FP8
      | XiaomiMiMo/MiMo-V2                              # FP8 in blocks of 128
    """,
    re.VERBOSE,
)
"""Families whose only official checkpoint is quantised, held against their published configs."""
NAMED = re.compile(r"(?i)(fp8|fp4|awq|gptq|int[48]|w8a8|w4a16)")
EIGHT_BITS = 1.35
"""Bytes a parameter that no quantised checkpoint exceeds; Llama-3.1-405B-FP8 (attention in bf16) has 1.2."""


@cache
def quantised_models() -> dict[str, Model]:
    models: dict[str, Model] = {}
    for card in packaged_cards():
        for variant in (None, *range(len(card.variants))):
            model = card.model_of(variant)
            if NATIVE.match(model.id) or NAMED.search(model.id):
                models[model.id] = model
    return models


def _bytes_and_parameters(model: Model) -> tuple[int, int] | None:
    """Bytes as stored and parameters; None where the weights are refused."""
    assert model.config is not None
    raw, quant = split_quant(model.config)
    try:
        stored = inventory_of(raw, hf_quant_config=quant)
    except KvplanError:
        return None
    total = weights_per_rank(WeightSources(inventory=stored), ALONE, BFLOAT16).total_bytes
    return total, stored.parameters


def test_the_families_are_there() -> None:
    names = quantised_models()
    assert len(names) > 60
    for native in ("deepseek-ai/DeepSeek-R1", "MiniMaxAI/MiniMax-M2", "moonshotai/Kimi-K2-Thinking"):
        assert native in names
    assert "deepseek-ai/DeepSeek-R1-Distill-Llama-8B" not in names


@for_each("name", sorted(quantised_models()))
def test_a_quantised_checkpoint_is_counted_quantised_or_refused(name: str) -> None:
    model = quantised_models()[name]
    assert model.quantization, f"{name} names no quantisation"
    found = _bytes_and_parameters(model) if model.config else None
    if found is not None:
        total, parameters = found
        assert total < EIGHT_BITS * parameters


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("MiniMaxAI/MiniMax-M2", 230),
        ("moonshotai/Kimi-K2-Thinking", 594),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", 487),
        ("sgl-project/DeepSeek-V4-Flash-FP8", 286),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", 19),
    ],
)
def test_sizes_that_were_once_wrong(name: str, gigabytes: int) -> None:
    found = _bytes_and_parameters(quantised_models()[name])
    assert found is not None
    assert round(found[0] / 1e9) == gigabytes
