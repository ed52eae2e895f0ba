"""Tables of rotary angles, by rope type."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.architectures.config.rotary import rotary_table_bytes

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 1000,
    "rope_theta": 10000.0,
}
PLAIN = 1000 * 128 * 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, PLAIN),
        ({"head_dim": 64}, PLAIN // 2),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 100}},
            PLAIN,
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 8 * PLAIN),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 2 * PLAIN),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 500}},
            2 * PLAIN,
        ),
        ({"partial_rotary_factor": 0.5}, PLAIN // 2),
        ({"rope_parameters": {"rope_theta": 1.0, "rope_type": "default"}}, PLAIN),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                    "sliding_attention": {"rope_type": "default"},
                }
            },
            9 * PLAIN,
        ),
    ],
)
def test_positions_times_width_times_element(changes: dict[str, Any], expected: int) -> None:
    assert rotary_table_bytes({**BASE, **changes}, 2) == expected


def test_gemma4_keeps_angles_of_whole_heads() -> None:
    """vLLM's gemma4_rope.py (Gemma4RotaryEmbedding): rotary_dim is the head's, whatever share of it turns."""
    kinds = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default"},
    }
    text = {**BASE, "head_dim": 128, "global_head_dim": 256, "rope_parameters": kinds}
    assert rotary_table_bytes(text, 2) == 3 * PLAIN


def test_gemma3_has_two() -> None:
    text = {**BASE, "model_type": "gemma3_text", "head_dim": 128, "rope_local_base_freq": 10000.0}
    assert rotary_table_bytes(text, 2) == 2 * PLAIN
    scaled = {**text, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert rotary_table_bytes(scaled, 2) == 9 * PLAIN


def test_learned_positions_have_none() -> None:
    assert rotary_table_bytes({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2}, 2) == 0
