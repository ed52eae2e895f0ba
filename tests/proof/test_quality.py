"""``kvplan quality``: errors of attention against float64, of drawn numbers and of a real model."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.dtypes import KV_DTYPES
from kvplan.errors import KvplanError
from kvplan.proof.numerics.drawn import DESCRIPTIONS, NORMAL, OUTLIERS, draw, shapes_of
from kvplan.proof.numerics.measure import Sample, errors
from scripts.make_kv_errors import PLAIN, kv_errors, measured

torch = pytest.importorskip("torch")


def test_attention_by_hand() -> None:
    """Two tokens, one head of width 1: keys 0 and ln 3, so weights 1/4 and 3/4; values 1 and 5."""
    keys = torch.tensor([[[0.0], [1.0986122886681098]]])
    sample = Sample(torch.tensor([[[1.0]]]), keys, torch.tensor([[[1.0], [5.0]]]))
    (found,) = errors(sample, [KV_DTYPES["fp8_e4m3"]], calibrated=False)
    kept = 1.125  # e4m3's next to ln 3
    weight = exp(kept) / (exp(kept) + 1)
    assert found.key == pytest.approx((kept - 1.0986122886681098) / 1.0986122886681098, rel=1e-4)
    assert found.value == 0
    assert found.moved == pytest.approx(weight - 0.75, rel=1e-4)
    assert found.output == pytest.approx(4 * (weight - 0.75) / 4, rel=1e-4)


def test_a_token_that_comes_later_is_not_seen() -> None:
    """The first query of two sees the first token alone, so that the second's error is no error to it."""
    queries = torch.ones(1, 2, 8)
    keys, values = torch.zeros(1, 2, 8), torch.ones(1, 2, 8)
    values[:, 1] = 1.06  # not one of e4m3
    (both,) = errors(Sample(queries, keys, values), [KV_DTYPES["fp8_e4m3"]], calibrated=False)
    (last,) = errors(Sample(queries[:, 1:], keys, values), [KV_DTYPES["fp8_e4m3"]], calibrated=False)
    (window,) = errors(
        Sample(queries[:, 1:], keys, values, window=1), [KV_DTYPES["fp8_e4m3"]], calibrated=False
    )
    assert both.output < last.output < window.output


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(("llama-3.1-8b", "gemma-3-4b", "deepseek-v3", "falcon-7b")),
    st.sampled_from(sorted(DESCRIPTIONS)),
)
def test_more_bits_are_never_worse(name: str, inputs: str) -> None:
    """Law: 16 bit before 8 before 4 before 2, on every shape and input."""
    for shape in shapes_of(kvplan.load_model(name)):
        sample = draw(shape, inputs, 160, 8, 5, "cpu")
        order = ("float32", "bfloat16", "q8_0", "q5_1", "q4_1")
        found = [one.output for one in errors(sample, [KV_DTYPES[form] for form in order], calibrated=True)]
        assert found == sorted(found)
        assert found[0] < 1e-6


def test_outlier_channels_are_of_keys_alone() -> None:
    (shape,) = shapes_of(kvplan.load_model("llama-3.1-8b"))
    normal, outliers = (draw(shape, name, 256, 4, 1, "cpu") for name in (NORMAL, OUTLIERS))
    large = outliers.keys.std(dim=(0, 1)) > 4
    assert int(large.sum()) == 128 // 32
    assert torch.equal(normal.values.std(), outliers.values.std()) or outliers.values.std() < 1.1


def test_the_answer() -> None:
    result = kvplan.quality("llama-3.1-8b", formats="int8,fp8,nvfp4,turboquant", sample_tokens=128)
    names = [cost.format for cost in result.formats]
    assert names[:4] == ["bfloat16", "int8", "fp8_e4m3", "nvfp4"]
    assert sum(name.startswith("turboquant") for name in names) == 4
    half = result.formats[1]
    assert half.saved == 0.5
    assert half.kv_bytes_per_request == 8192 * 32 * 8 * 2 * 128
    for inputs in result.inputs:
        assert [one.layers for one in inputs.layers] == [32]
        assert inputs.mean(0).output < inputs.mean(2).output < inputs.mean(3).output
    again = kvplan.quality("llama-3.1-8b", formats="int8,fp8,nvfp4,turboquant", sample_tokens=128)
    assert again == result


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three layers with weights drawn at random."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_what_is_looked_at_is_what_the_cache_keeps(tiny: Path) -> None:
    """Keys and values of every layer are those of transformers' own DynamicCache."""
    import transformers

    from kvplan.proof.numerics.activations import watch

    seen: dict[int, Any] = {}
    said = watch(str(tiny), "", 96, 16, "cpu", seen.__setitem__)
    assert "no tokenizer" in said
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny, local_files_only=True)
    tokens = torch.randint(0, 256, (1, 96), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        cache = model(tokens, use_cache=True).past_key_values
    assert sorted(seen) == [0, 1, 2]
    for layer, sample in seen.items():
        assert torch.allclose(sample.keys, cache.layers[layer].keys[0], atol=1e-5)
        assert torch.allclose(sample.values, cache.layers[layer].values[0], atol=1e-5)
        assert sample.queries.shape == (4, 16, 32)


def test_a_real_model(tiny: Path) -> None:
    result = kvplan.quality(str(tiny), activations=tiny, formats="fp8,q4_0", sample_tokens=64)
    (inputs,) = result.inputs
    assert [one.layer for one in inputs.layers] == ["0", "1", "2"]
    assert 0 < inputs.mean(1).output < inputs.mean(2).output < 1


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": -3}', encoding="utf-8")
    with pytest.raises(KvplanError, match="cannot be run"):
        kvplan.quality("llama-3.1-8b", activations=tmp_path)


SOME = frozenset(("fp8_e4m3", "nvfp4", "turboquant_3bit_nc", "q4_0", "fp8_ds_mla"))


def test_the_docs_table_is_current() -> None:
    """Every format but 16 bit has a row, for heads and for latents, and this code measures the same."""
    for kind, found in measured(SOME).items():
        for form, pair in found.items():
            assert pair == pytest.approx(kv_errors()[kind][form], rel=0.06)
    assert set(kv_errors()["latent"]) == set(KV_DTYPES) - set(PLAIN)
    assert set(kv_errors()["heads"]) == set(KV_DTYPES) - set(PLAIN) - {"fp8_ds_mla", "nvfp4_ds_mla"}
