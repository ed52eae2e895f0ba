"""Inventories against lists of the tensors that a published checkpoint has, encoders and all.

Sources: gogongxt/python scripts/models/*.md (revisions: the cards'), with every tensor's shape; of the
second test AlexsJones/llmfit 1.1.17 llmfit-core/data/hf_models.json, totals of the safetensors' headers. A
list also has block scales, prediction layers and, of MiMo, no embedding for its audio encoder's Qwen2 (vLLM
0.33 builds one that nothing reads: mimo_audio.py, Qwen2Model): each is a term of its own below.
"""

from __future__ import annotations

import pytest

from kvplan.api import load_model
from kvplan.architectures.config.view import split_quant
from kvplan.architectures.inventory import inventory_of

UNREAD_EMBEDDING = 151_936 * 1024


def _mimo(hidden: int, heads: int, kv: int, scale_rows: int) -> tuple[int, int]:
    """Numbers of one prediction layer, and scales of its blocks of 128 × 128."""
    inner, joint = 16_384, heads * 192 + kv * (192 + 128)
    numbers = 2 * hidden * hidden + 5 * hidden + 3 * inner * hidden + heads * 128 * hidden + heads
    return numbers + joint * hidden, 3 * (inner // 128) * (hidden // 128) + scale_rows * (hidden // 128)


def _experts(layers: int, count: int, hidden: int) -> int:
    return layers * count * 3 * (hidden // 128) * (2048 // 128)


FLASH, PRO = _mimo(4096, 64, 8, 116), _mimo(6144, 128, 8, 216)
FLASH_SCALES = (9 * 108 + 39 * 116) * 32 + 3 * 128 * 32 + _experts(47, 256, 4096)
PRO_SCALES = 70 * 216 * 48 + 3 * 128 * 48 + _experts(69, 384, 6144)


@pytest.mark.parametrize(
    ("card", "published", "not_loaded", "built"),
    [
        ("deepseek-ocr", 3_336_106_240, 0, 0),
        ("mimo-v2.5", 310_775_040_000, 3 * sum(FLASH) + FLASH_SCALES, UNREAD_EMBEDDING),
        ("mimo-v2.5-pro", 1_023_244_718_976, 3 * sum(PRO) + PRO_SCALES, 0),
    ],
)
def test_every_number_of_the_checkpoint_is_there(
    card: str, published: int, not_loaded: int, built: int
) -> None:
    raw, quant = split_quant(load_model(card).config or {})
    inventory = inventory_of(raw, hf_quant_config=quant)
    assert inventory.parameters == published - not_loaded + built


@pytest.mark.parametrize(
    ("card", "published"),
    [
        ("bamba-9b", 9_780_235_392),
        ("ernie-4.5-vl-28b-a3b", 29_399_294_336),
        ("falcon-h1-34b", 33_642_516_224),
        ("glm-4.1v-9b", 10_292_777_472),
        ("granite-4.0-h-small", 32_207_337_984),
        ("intern-s1", 240_709_856_128),
        ("internvl3.5-8b", 8_528_318_464),
        ("kimi-linear-48b-a3b", 49_122_681_728),
        ("lfm2.5-230m", 229_693_184),
        ("minimax-m3-nvfp4", 427_040_140_160),
        ("minimax-text-01", 456_089_655_296),
        ("mistral-medium-3.5-128b", 127_704_210_176),
        ("qwen2.5-vl-72b", 73_410_777_344),
        ("ring-1t-fp8", 999_705_328_640),
        ("seed-oss-36b", 36_151_104_512),
    ],
)
def test_the_published_total_is_met_to_the_last_number(card: str, published: int) -> None:
    raw, quant = split_quant(load_model(card).config or {})
    assert inventory_of(raw, hf_quant_config=quant).parameters == published
