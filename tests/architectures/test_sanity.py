"""Configs that no class could build, and sizes that a config leaves to its class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model
from kvplan.errors import KvplanError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "hidden_size": 3072,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size"])
def test_a_model_without_layers_or_words_is_refused(key: str) -> None:
    with pytest.raises(KvplanError) as caught:
        load_model({**LLAMA, key: 0})
    assert (caught.value.code, caught.value.exit_code) == ("bad-config", 2)
    assert key in caught.value.message


@given(st.integers(1, 256), st.integers(1, 256))
def test_query_heads_share_kv_heads_evenly_or_the_config_is_refused(heads: int, shared: int) -> None:
    config = {**LLAMA, "num_attention_heads": heads, "num_key_value_heads": shared, "head_dim": 64}
    if heads % shared == 0:
        assert load_model(config).num_attention_heads == heads
        return
    with pytest.raises(KvplanError) as caught:
        load_model(config)
    assert caught.value.code == "bad-config"
    assert str(heads) in caught.value.message
    proposed = [int(word) for word in caught.value.help[0].rpartition(":")[2].split(",")]
    assert all(heads % number == 0 for number in proposed)


def test_layers_that_the_class_decides_are_said() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    model = load_model(config)
    said = [text for text in model.warnings if "num_hidden_layers" in text]
    assert len(said) == 1
    assert str(model.num_layers) in said[0]
    assert "default of llama" in said[0]
    assert not any("num_hidden_layers" in text for text in load_model(LLAMA).warnings)


def test_a_custom_type_says_what_it_assumed() -> None:
    config = {**LLAMA, "model_type": "baichuan", "architectures": ["BaichuanForCausalLM"]}
    assert not any("assumed" in text for text in load_model(config).warnings)
    del config["num_key_value_heads"]
    said = [text for text in load_model(config).warnings if "assumed" in text]
    assert len(said) == 1
    assert "KV heads" in said[0]
