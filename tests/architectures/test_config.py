"""Reading a config: where the text part lies, and what the decoder is to the whole."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.read import text_view
from kvplan.families import CrossAttention, FullAttention
from kvplan.model import EncoderInput
from tests.architectures.configs import PLAIN, families, read, refused

BART = {"model_type": "bart", "decoder_layers": 3, "encoder_layers": 5, "decoder_attention_heads": 4,
        "encoder_attention_heads": 8, "d_model": 64}  # fmt: skip


# ---- the text part


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config", "decoder"])
def test_unknown_wrapper_of_a_known_text_model(key: str) -> None:
    model = read({"model_type": "brand-new-vl", key: {"model_type": "llama", **PLAIN}, "vision_config": {}})
    assert model.model_type == "llama"
    assert model.num_layers == 4
    assert "brand-new-vl" in model.warnings[0]


def test_nested_twice() -> None:
    view = text_view(
        {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": {"num_hidden_layers": 3}}}
    )
    assert view.path == "thinker_config.text_config."
    assert view.num_layers() == 3


def test_missing_part_takes_the_wrappers_own_settings() -> None:
    """PaliGemma without a text part has 18 layers and one KV head, with one Gemma's 28 and 16."""
    assert read({"model_type": "paligemma"}).num_layers == 18
    assert read({"model_type": "paligemma", "text_config": {"model_type": "gemma"}}).num_layers == 28


def test_flat_wrappers() -> None:
    known = read({"model_type": "qwen2_5_vl", **PLAIN})
    assert (known.num_layers, known.warnings) == (4, ())
    other = read({"model_type": "gemma3", **PLAIN, "head_dim": 16})
    assert other.num_layers == 4
    assert "no text_config" in other.warnings[0]


def test_private_model_type_of_a_public_class() -> None:
    model = read({"model_type": "my-llama", "architectures": ["LlamaForCausalLM"], **PLAIN})
    assert (
        families({"model_type": "my-llama", "architectures": ["LlamaForCausalLM"], **PLAIN})
        == ["full_attention"] * 4
    )
    assert model.warnings == ()


def test_architecture_without_a_model_type() -> None:
    assert read({"architectures": ["Qwen2ForCausalLM"], **PLAIN}).model_type == "qwen2"
    assert refused({"architectures": ["NoSuchModel"], **PLAIN}).code == "unknown-model-type"
    assert refused(PLAIN).code == "bad-config"


# ---- the decoder's role


def test_encoder_decoder_reads_the_decoders_keys() -> None:
    model = read({**BART, "architectures": ["BartForConditionalGeneration"]})
    assert model.encoder is not None
    assert model.num_layers == 3
    assert model.layers()[0].parts == (FullAttention(4, 16), CrossAttention(4, 16))


@pytest.mark.parametrize(
    ("architecture", "crossed"),
    [
        ("BartForCausalLM", False),
        ("BartForConditionalGeneration", True),
        ("BartModel", True),
        ("BartForSequenceClassification", True),
        (None, True),
    ],
)
def test_architectures_decide(architecture: str | None, crossed: bool) -> None:
    model = read({**BART, "architectures": [architecture] if architecture else None})
    assert (model.encoder is not None) is crossed
    assert (model.layers()[0].family == "full_attention+cross_attention") is crossed


def test_encoder_alone() -> None:
    model = read({"model_type": "t5", "architectures": ["T5EncoderModel"]})
    assert model.no_cache_reason is not None
    assert kvplan.size(model, engine="generic", tokens=100).per_gpu.kv_bytes == 0


@pytest.mark.parametrize(
    ("config", "cached"),
    [
        ({"model_type": "bert"}, False),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, False),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, True),
        ({"model_type": "bert", "is_decoder": True}, True),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForCausalLM"]}, True),
        ({"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}, False),
        ({"model_type": "distilbert"}, False),
        ({"model_type": "openai-gpt"}, False),
        ({"model_type": "xlm"}, False),
        ({"model_type": "vit"}, False),
        ({"model_type": "swin"}, False),
        ({"model_type": "gpt2"}, True),
        ({"model_type": "qwen2", "architectures": ["Qwen2Model"]}, True),
    ],
)
def test_models_without_a_cache_say_why(config: dict[str, Any], cached: bool) -> None:
    model = read(config)
    result = kvplan.size(model, engine="generic", tokens=64)
    assert (result.per_gpu.kv_bytes > 0) is cached
    assert (model.no_cache_reason is None) is cached
    assert any("no KV cache" in warning for warning in result.warnings) is not cached


@pytest.mark.parametrize(
    ("config", "source", "tokens"),
    [
        ({"model_type": "whisper"}, EncoderInput.AUDIO, 1500),
        ({"model_type": "whisper", "max_source_positions": 32}, EncoderInput.AUDIO, 32),
        ({"model_type": "t5"}, EncoderInput.TEXT, None),
        ({"model_type": "mllama"}, EncoderInput.IMAGE, None),
        ({"model_type": "vision-encoder-decoder"}, EncoderInput.IMAGE, None),
        (
            {
                "model_type": "vision-encoder-decoder",
                "encoder": {"model_type": "deit", "image_size": 384, "patch_size": 16},
            },
            EncoderInput.IMAGE,
            24 * 24 + 2,
        ),
    ],
)
def test_encoders(config: dict[str, Any], source: EncoderInput, tokens: int | None) -> None:
    encoder = read(config).encoder
    assert encoder is not None
    assert (encoder.input, encoder.tokens) == (source, tokens)


def test_any_decoder_below_an_encoder_gets_cross_attention() -> None:
    config = {
        "model_type": "encoder-decoder",
        "decoder": {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64},
    }
    assert families(config) == ["full_attention+cross_attention"] * 2


def test_llama_vision_keeps_images_only_in_its_cross_layers() -> None:
    config = {"model_type": "mllama", "text_config": {**PLAIN, "cross_attention_layers": [1, 3, 90]}}
    model = read(config)
    assert [layer.family for layer in model.layers()] == ["full_attention", "cross_attention"] * 2
    one = kvplan.size(model, engine="generic", tokens=10, encoder_tokens=0).per_gpu
    two = kvplan.size(model, engine="generic", tokens=10, encoder_tokens=100).per_gpu
    assert two.kv_bytes - one.kv_bytes == 2 * 100 * 2 * 16 * 2
