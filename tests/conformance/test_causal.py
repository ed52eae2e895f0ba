"""kvplan's engine ``transformers`` against the library: every decoder-only architecture, to the byte.

Plain runs take a sample; KVPLAN_CONFORMANCE=all takes every architecture and the class-default sizes.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers 5.24")

from tests.conformance import harness

if not harness.HAVE_RELEASE:
    pytest.skip(f"needs transformers {harness.RELEASE}", allow_module_level=True)

import torch
import transformers

import kvplan
from kvplan.engines.transformers.engine import NO_STATIC_CACHE
from tests.conformance.causal_cases import (
    CAUSAL,
    FLOAT32_ONLY,
    KNOWN_MEASURABLE,
    NO_FORMULA,
    PROMPT_ONLY,
    UNMEASURABLE,
    all_cases,
    sample,
)
from tests.conformance.shrink import WINDOW, small_config

pytestmark = pytest.mark.conformance
WHOLE = os.environ.get("KVPLAN_CONFORMANCE") == "all"
CASES = all_cases() if WHOLE else sample(all_cases())[::2]
LENGTHS = (WINDOW - 5, WINDOW, 31)


def sized(config: dict[str, Any], reading: harness.Reading) -> tuple[int, int]:
    """kvplan's kv_bytes and peak_bytes for a reading."""
    per_gpu = kvplan.size(
        config,
        engine=harness.ENGINE,
        tokens=reading.tokens,
        encoder_tokens=reading.encoder_tokens,
        requests=reading.requests,
        dtype=reading.dtype,
    ).per_gpu
    return per_gpu.kv_bytes, per_gpu.peak_bytes


def spellings(config: Any, class_name: str) -> list[dict[str, Any]]:
    """The config as saved (without what the class defaults to) and written out in full."""
    named = {"architectures": [class_name]}
    return [{**config.to_diff_dict(), **named}, {**config.to_dict(), **named}]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_small_models(case: harness.Case) -> None:
    config = small_config(case.model_type, case.settings)
    steps = 0 if case.model_type in PROMPT_ONLY else 2
    dtypes = ["float32"] if case.model_type in FLOAT32_ONLY else ["bfloat16", "float32"]
    wrong = []
    readings = 0
    with harness.time_limit(120):
        for dtype in dtypes:
            model = harness.build(case.class_name, config, dtype)
            for reading in harness.measure(model, config, LENGTHS, dtype, steps=steps):
                readings += 1
                for spelling in spellings(config, case.class_name):
                    kv_bytes, peak_bytes = sized(spelling, reading)
                    pinned = max(reading.bytes, reading.storage_bytes)
                    if kv_bytes != reading.bytes:
                        wrong.append((reading, kv_bytes))
                    elif reading.phase == "prefill" and peak_bytes != pinned:
                        wrong.append((reading, peak_bytes))
    assert not wrong, f"{case.name}: {wrong[0]}"
    assert readings == len(dtypes) * len(LENGTHS) * 2


def test_no_architecture_was_left_out() -> None:
    """Every architecture of the release is built (all_cases) or listed with the reason why it cannot be."""
    built = len(CAUSAL) - len(UNMEASURABLE) - len(NO_FORMULA)
    assert built >= KNOWN_MEASURABLE
    assert len(all_cases()) > built
    assert {*UNMEASURABLE, *NO_FORMULA} <= set(CAUSAL)


@pytest.mark.parametrize("model_type", ["openai-gpt", "xlm"])
def test_types_that_keep_nothing(model_type: str) -> None:
    config = small_config(model_type)
    model = harness.build(CAUSAL[model_type], config, "float32")
    with pytest.raises(harness.NoCacheError):
        list(harness.measure(model, config, (9,), "float32"))
    result = kvplan.size({"model_type": model_type}, engine="transformers", tokens=100, dtype="float32")
    assert result.per_gpu.kv_bytes == 0
    assert any("no" in warning and "cache" in warning for warning in result.warnings)


STATIC_LENGTH = 26
STATIC = [case for case in (all_cases() if WHOLE else sample(all_cases())[::3]) if case.variant == "base"]


@pytest.mark.parametrize("case", STATIC, ids=lambda case: case.model_type)
def test_static_caches(case: harness.Case) -> None:
    """A StaticCache of 26 tokens with 20 of them filled; refused where the class cannot use one."""
    config = small_config(case.model_type, case.settings)
    text = config.get_text_config(decoder=True)
    asked: dict[str, Any] = {
        "engine": harness.ENGINE,
        "tokens": 20,
        "max_model_len": STATIC_LENGTH,
        "requests": 2,
        "dtype": "float32",
        "cache_implementation": "static",
    }
    named = {**config.to_diff_dict(), "architectures": [case.class_name]}
    if text.model_type in NO_STATIC_CACHE:
        with pytest.raises(kvplan.KvplanError):
            kvplan.size(named, **asked)
        return
    model = harness.build(case.class_name, config, "float32")
    ids = torch.randint(10, 90, (2, 20), generator=torch.Generator().manual_seed(1))
    cache = transformers.StaticCache(config=text, max_cache_len=STATIC_LENGTH)
    with harness.time_limit(120), torch.no_grad():
        harness.hidden_state(model, clear=True)
        model(input_ids=ids, cache=cache, use_cache=True)
    held = harness.data_bytes([*harness.reachable(cache), *harness.hidden_state(model)])
    assert kvplan.size(named, **asked).per_gpu.kv_bytes == held
