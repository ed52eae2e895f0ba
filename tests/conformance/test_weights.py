"""kvplan's tensors against the library's modules: every decoder, every size and switch, layer by layer.

Plain runs take a sample; KVPLAN_CONFORMANCE=all takes every type.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers 5.24")

from tests.conformance import harness

if not harness.HAVE_RELEASE:
    pytest.skip(f"needs transformers {harness.RELEASE}", allow_module_level=True)

from kvplan.architectures.inventory import known_decoders
from tests.conformance.weight_cases import (
    ALWAYS,
    CLASSES,
    DIFFERS,
    WRAPPERS,
    built,
    library_sums,
    own_sums,
    part_variants,
    spelled,
    variants,
    weight_types,
)

pytestmark = pytest.mark.conformance
WHOLE = os.environ.get("KVPLAN_CONFORMANCE") == "all"
TYPES = [name for name in weight_types() if WHOLE or name in ALWAYS or zlib.crc32(name.encode()) % 8 == 0]
SOME = ("paligemma", "qwen2_vl", "qwen2_audio")
LEAST = 143
"""Decoders of the library whose tensors are held against it."""


@pytest.mark.parametrize("model_type", TYPES)
def test_every_size_of_every_layer(model_type: str) -> None:
    wrong: list[tuple[str, Any]] = []
    count = 0
    with harness.time_limit(240):
        for name, config in variants(model_type):
            theirs = library_sums(model_type, built(CLASSES[model_type], config))
            ours = own_sums(spelled(model_type, config))
            count += 1
            if theirs != ours:
                keys = {*theirs, *ours}
                wrong.append(
                    (name, {key: ours[key] - theirs[key] for key in keys if ours[key] != theirs[key]})
                )
    assert not wrong, f"{len(wrong)} of {count}: {wrong[:3]}"
    assert count >= 5


@pytest.mark.parametrize("model_type", [name for name in WRAPPERS if WHOLE or name in SOME])
def test_every_size_of_a_wrapper(model_type: str) -> None:
    wrong, count = [], 0
    with harness.time_limit(240):
        for name, config in part_variants(model_type):
            theirs = library_sums(model_type, built(WRAPPERS[model_type], config)).total()
            ours = own_sums(spelled(model_type, config)).total()
            count += 1
            if theirs != ours:
                wrong.append((name, ours - theirs))
    assert not wrong, f"{len(wrong)} of {count}: {wrong[:3]}"
    assert count >= 5


def test_nearly_every_decoder_is_held() -> None:
    assert len(weight_types()) >= LEAST
    assert set(DIFFERS) <= set(known_decoders())
