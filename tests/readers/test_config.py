"""Reading a config: the text part, custom types, roles of the decoder, unknown types."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.families import CrossAttention, FullAttention, NoCache, SharedKv, SlidingWindow
from kvplan.model import EncoderInput, Model
from kvplan.readers.config import read_config, text_view

PLAIN = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
BART = {"model_type": "bart", "decoder_layers": 3, "encoder_layers": 5, "decoder_attention_heads": 4,
        "encoder_attention_heads": 8, "d_model": 64}  # fmt: skip


def read(config: dict[str, Any]) -> Model:
    return read_config(config, id="m", source="test")


def families(config: dict[str, Any]) -> list[str]:
    return [layer.family for layer in read(config).layers()]


def refused(config: dict[str, Any]) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        read(config)
    return caught.value


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


# ---- custom code


@pytest.mark.parametrize(
    "model_type", ["baichuan", "internlm", "qwen", "xverse", "orion", "internlm2", "exaone"]
)
def test_every_head_has_its_own_kv_without_a_key(model_type: str) -> None:
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    part = read({"model_type": model_type, **config}).layers()[0].parts[0]
    assert part == FullAttention(8, 8)


def test_a_grouped_type_needs_its_kv_heads() -> None:
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    error = refused({"model_type": "bailing_moe", **config})
    assert error.code == "missing-key"
    assert "num_key_value_heads" in error.message


def test_custom_type_with_a_window_that_it_does_not_have() -> None:
    error = refused({"model_type": "internlm2", **PLAIN, "sliding_window": 512})
    assert error.code == "unknown-layer-type"
    assert "sliding_window" in error.message


@pytest.mark.parametrize(("flag", "kv"), [(True, 2), (False, 32)])
def test_chatglm_reads_its_flag(flag: bool, kv: int) -> None:
    config = {"model_type": "chatglm", "multi_query_attention": flag, "multi_query_group_num": 2}
    model = read(config)
    assert model.num_layers == 28
    assert model.layers()[0].parts[0] == FullAttention(kv, 128)


def test_falcon_in_three_spellings() -> None:
    old = {"model_type": "RefinedWeb", "n_layer": 60, "n_head": 128, "n_head_kv": 8, "hidden_size": 8192}
    assert read(old).layers()[0].parts[0] == FullAttention(8, 64)
    first = {
        "model_type": "RefinedWebModel",
        "n_layer": 32,
        "n_head": 71,
        "hidden_size": 4544,
        "multi_query": True,
    }
    assert read(first).layers()[0].parts[0] == FullAttention(1, 64)
    mixed = read({**old, "model_type": "falcon", "new_decoder_architecture": True})
    assert mixed.num_layers == 60
    assert kvplan.size(mixed, engine="generic", tokens=1).per_gpu.kv_bytes == 60 * 8 * 128 * 2
    assert "n_head_kv as num_kv_heads" in mixed.warnings[0]


def test_nas_blocks() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 4}},
        {"attention": {"no_op": True, "n_heads_in_group": None}},
        {"attention": {"replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 2, "window_length": 128, "num_sink_tokens": 4}},
    ]
    model = read({"model_type": "nemotron-nas", **PLAIN, "block_configs": blocks})
    parts = [layer.parts[0] for layer in model.layers()]
    assert parts == [FullAttention(2, 8), NoCache(), NoCache(), SlidingWindow(4, 8, 128, sink_tokens=4)]


def test_layers_with_heads_of_their_own() -> None:
    openelm = {
        "model_type": "openelm",
        "num_transformer_layers": 3,
        "head_dim": 64,
        "num_kv_heads": [3, 4, 5],
    }
    assert [layer.parts[0] for layer in read(openelm).layers()] == [FullAttention(kv, 64) for kv in (3, 4, 5)]
    deci = {"model_type": "deci", **PLAIN, "num_key_value_heads_per_layer": [4, 2, 2, 1]}
    assert [layer.parts[0] for layer in read(deci).layers()] == [FullAttention(kv, 8) for kv in (4, 2, 2, 1)]
    assert "3 entries for 4 layers" in refused({**deci, "num_key_value_heads_per_layer": [4, 2, 2]}).message


def test_hunyuan_shares_every_other_layer() -> None:
    shared = read({"model_type": "hunyuan", **PLAIN, "use_cla": True, "cla_share_factor": 2})
    assert [type(layer.parts[0]) for layer in shared.layers()] == [FullAttention, SharedKv] * 2
    alone = read({"model_type": "hunyuan", **PLAIN, "use_cla": False, "cla_share_factor": 2})
    assert [type(layer.parts[0]) for layer in alone.layers()] == [FullAttention] * 4


def test_attention_sinks() -> None:
    """StreamingLLM: four first tokens and 1,020 newest ones are kept, so the cache stops growing at 1,024."""
    config = {"model_type": "llama", **PLAIN, "attention_sink_size": 4, "attention_sink_window_size": 1020}
    sizes = [
        kvplan.size(config, engine="generic", tokens=tokens).per_gpu.kv_bytes for tokens in (1023, 1024, 9999)
    ]
    assert sizes[0] < sizes[1] == sizes[2] == 1024 * 4 * 2 * 16 * 2


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


# ---- unknown types


def test_unknown_plain_decoder_is_read_with_a_warning() -> None:
    model = read({"model_type": "brand-new", **PLAIN, "num_local_experts": 8, "shared_expert_size": 64})
    assert model.layers()[0].parts[0] == FullAttention(2, 8)
    assert "brand-new" in model.warnings[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sliding_window", 4096),
        ("layer_types", ["full_attention"] * 4),
        ("kv_lora_rank", 512),
        ("mamba_d_state", 16),
        ("linear_attn_config", {"kda_layers": [1]}),
        ("block_configs", [{}]),
        ("cla_share_factor", 2),
        ("index_topk", 2048),
        ("compress_ratios", [4]),
        ("conv_kernel", 4),
        ("hybrid_layer_pattern", [0, 1, 0, 1]),
        ("some_new_list", [1, 0, 1, 0]),
        ("attention_sink_count", 4),
        ("n_head", 16),
        ("num_kv_heads", 4),
    ],
)
def test_unknown_type_with_a_telltale_key_is_refused(key: str, value: object) -> None:
    error = refused({"model_type": "brand-new", **PLAIN, key: value})
    assert error.code == "unknown-model-type"
    assert key in error.message


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_key_value_heads"])
def test_unknown_type_without_a_key_is_refused(key: str) -> None:
    config = {name: value for name, value in PLAIN.items() if name != key}
    assert key in refused({"model_type": "brand-new", **config}).message


def test_switched_off_keys_say_nothing() -> None:
    config = {
        "model_type": "brand-new",
        **PLAIN,
        "sliding_window": 4096,
        "use_sliding_window": False,
        "ssm_cfg": {},
    }
    assert families(config) == ["full_attention"] * 4


def test_did_you_mean() -> None:
    assert refused({"model_type": "lama", "sliding_window": 1}).help == ("did you mean 'llama'?",)
