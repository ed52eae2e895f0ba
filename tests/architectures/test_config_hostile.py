"""Broken configs: whatever a file or a caller hands over, the answer is a Model or a KvplanError, soon."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.class_names import known_model_types
from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import MAX_LAYERS
from kvplan.architectures.lineages import custom_types
from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.test_known_cases import CASES

LONGEST_SECONDS = 2.0

T5 = {
    "model_type": "t5",
    "num_layers": 4,
    "num_heads": 4,
    "d_kv": 16,
    "d_model": 64,
    "architectures": ["T5Model"],
}
STEP = {
    "model_type": "step3p7",
    "num_hidden_layers": 4,
    "num_nextn_predict_layers": 2,
    "sliding_window": 8,
    "layer_types": ["full_attention", "sliding_attention"] * 3,
}
QUANTISED = {
    **CASES[0][1],
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
    },
    "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    "max_position_embeddings": 4096,
}
V4 = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "num_nextn_predict_layers": 1}
UNKNOWN = {
    "model_type": "brand-new",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}
NESTED = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": {"num_hidden_layers": 2}}}
COMPOSITE = {
    "model_type": "encoder-decoder",
    "decoder": {"model_type": "gpt2"},
    "encoder": {"model_type": "bert"},
}
BASES: list[dict[str, Any]] = [
    *(case[1] for case in CASES),
    T5,
    STEP,
    QUANTISED,
    V4,
    UNKNOWN,
    NESTED,
    COMPOSITE,
    *(
        {"model_type": name}
        for name in ("llava", "mllama", "bert", "gemma3n", "zamba2", "longcat_flash", "xlstm")
    ),
    *(
        {"model_type": name, "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4}
        for name in custom_types()
    ),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.sampled_from([10**30, -(10**30), 2**31, 2**31 - 1, 10**5, 4097, 0, -1])
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["full_attention", "sliding_attention", "mamba", "float99", "torch.bfloat16", "x" * 100_000]
    )
    | st.binary(max_size=4)
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside nested objects and lists."""
    found = [path] if path else []
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:3]))
    for key, inner in items:
        found += _places(inner, (*path, key))
    return found


@st.composite
def broken_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A real-looking config with some values replaced by junk, keys deleted, and parts swapped."""
    config: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(1, 4))):
        places = _places(config)
        if not places:
            break
        path = draw(st.sampled_from(places))
        holder: Any = config
        for key in path[:-1]:
            holder = holder[key]
        action = draw(st.sampled_from(["junk", "junk", "junk", "delete", "wrap", "self"]))
        if action == "delete" and isinstance(holder, dict):
            del holder[path[-1]]
        elif action == "wrap":
            holder[path[-1]] = [holder[path[-1]]] * draw(st.integers(0, 3))
        elif action == "self":
            holder[path[-1]] = copy.deepcopy(config)
        else:
            holder[path[-1]] = draw(junk)
    if draw(st.booleans()):
        config[draw(st.sampled_from(_EXTRA_KEYS))] = draw(junk)
    return config


_EXTRA_KEYS = (
    "layer_types",
    "sliding_window",
    "text_config",
    "architectures",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "rope_scaling",
    "rope_parameters",
    "max_position_embeddings",
    "model_max_length",
    "num_nextn_predict_layers",
    "per_layer_config",
    "block_configs",
    "is_encoder_decoder",
    "is_decoder",
    "vocab_size",
    "head_dim",
    "decoder",
    "attention_sink_size",
    "attention_sink_window_size",
    "num_key_value_heads",
    "num_hidden_layers",
    "model_type",
)


def _read(config: Any, hf_quant_config: Any = None) -> Model | None:
    """A Model that every engine can be asked about, or None where it was refused; never another exception."""
    start = time.process_time()
    model: Model | None
    try:
        model = read_config(config, id="m", source="test", hf_quant_config=hf_quant_config)
        assert model.num_layers <= 2 * MAX_LAYERS
        kvplan.size(model, engine="generic", tokens=1000, encoder_tokens=10)
    except KvplanError as error:
        refusal: KvplanError | None = error
        model = None
    else:
        refusal = None
    assert time.process_time() - start < LONGEST_SECONDS
    assert refusal is None or len(refusal.format()) < 4000
    return model


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(broken_configs())
def test_mutated_configs(config: dict[str, Any]) -> None:
    _read(config)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(_EXTRA_KEYS) | st.text(max_size=6), junk, max_size=6), st.data())
def test_junk_around_a_model_type(config: dict[str, Any], data: st.DataObject) -> None:
    _read({**config, "model_type": data.draw(st.sampled_from([*known_model_types(), *custom_types()]))})


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["quant_method", "quantization", "kv_cache_scheme", "kv_cache_quant_algo", "producer"]
        ),
        junk,
        max_size=4,
    )
)
def test_junk_in_the_quantisation(quant: dict[str, Any]) -> None:
    assert _read(CASES[0][1], quant) is not None
    _read({**CASES[0][1], "quantization_config": quant})


@settings(max_examples=100, deadline=None)
@given(junk)
def test_anything_at_all(config: Any) -> None:
    _read(config)


BOMB: dict[str, Any] = {"model_type": "llama"}
for _level in range(500):
    BOMB = {"model_type": "llava", "text_config": BOMB}
SELF: dict[str, Any] = {"model_type": "llava"}
SELF["text_config"] = SELF


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": None},
        {"model_type": 7},
        {"model_type": ["llama"]},
        {"model_type": "x" * 10**6},
        {"model_type": "llama", "num_hidden_layers": 10**30},
        {"model_type": "llama", "num_hidden_layers": -1},
        {"model_type": "llama", "num_hidden_layers": True},
        {"model_type": "llama", "num_hidden_layers": "32"},
        {"model_type": "llama", "num_hidden_layers": 31.5},
        {"model_type": "llama", "num_hidden_layers": float("nan")},
        {"model_type": "llama", "num_hidden_layers": float("inf")},
        {"model_type": "llama", "num_attention_heads": 0},
        {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 64},
        {"model_type": "llama", "layer_types": ["full_attention"] * 10**6},
        {"model_type": "llama", "layer_types": "full_attention"},
        {"model_type": "llama", "layer_types": [["full_attention"]] * 32},
        {"model_type": "llama", "layer_types": ["new_attention"] * 32},
        {"model_type": "gemma3", "text_config": []},
        {"model_type": "gemma3", "text_config": "gemma3_text"},
        {"model_type": "llava", "text_config": {"model_type": "no-such-type"}},
        {"model_type": "no-such-type"},
        {"architectures": ["NoSuchForCausalLM"]},
        {"model_type": "llama", "torch_dtype": "float99"},
        {"model_type": "llama", "torch_dtype": 16},
        {"model_type": "nemotron-nas", "num_hidden_layers": 2, "block_configs": [1, 2]},
        {"model_type": "nemotron-nas", "num_hidden_layers": 2, "block_configs": [{}]},
        {"model_type": "openelm", "num_transformer_layers": 2, "head_dim": 64, "num_kv_heads": [3, -3]},
        {
            "model_type": "minimax_text_01",
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "hidden_size": 64,
            "attn_type_list": [2],
        },
        BOMB,
        SELF,
        [],
        "llama",
        None,
        7,
    ],
    ids=lambda value: str(value)[:50].replace("\n", " "),
)
def test_refused(config: Any) -> None:
    assert _read(config) is None


class _Odd(dict[Any, Any]):
    """A mapping whose keys are no texts."""


def test_odd_mappings() -> None:
    odd = _Odd({"model_type": "llama", 7: 8, None: 1, (1, 2): 3})
    assert isinstance(odd, Mapping)
    assert _read(odd) is not None


def test_unknown_type_with_odd_keys() -> None:
    assert _read({**UNKNOWN, 7: "x"}) is not None
