"""Weights of a GGUF build by the name of its mixture of types, as published files and logs have them."""

from __future__ import annotations

from collections import Counter

import pytest

import kvplan
from kvplan.api import load_model
from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.gguf_file.converted import converted, hyper_of, tensors_of
from kvplan.engines.llamacpp.gguf_file.ggml_types import BLOCKS, MIXTURES, known_mixture, row_bytes
from kvplan.engines.llamacpp.gguf_file.quantise import GgufTensor, Hyper, more_bits, types_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.files.cards.find import list_cards
from kvplan.units import GIB, MIB
from tests.laws.sampling import WHOLE

# What llama.cpp prints of published files ("file size", bits a weight, "type q4_K: 193 tensors"), in public
# issues and logs: ggml-org/llama.cpp 14235 and 2576, gpustack/gpustack 1681,
# rjmalagon/ollama-linux-amd-apu 19, and the model pages of the files.
PRINTED = [
    ("llama-3.1-8b", "Q4_K_M", "4.58", "4.89", {"f32": 66, "q4_k": 193, "q6_k": 33}),
    ("llama-3.1-8b", "Q8_0", "7.95", "8.50", {"f32": 66, "q8_0": 226}),
    ("llama-3.1-8b", "F16", "14.96", "16.00", {"f32": 66, "f16": 226}),
    ("llama-2-7b", "Q4_K_M", "3.80", "4.84", {"f32": 65, "q4_k": 193, "q6_k": 33}),
    ("llama-3.3-70b", "Q4_K_M", "39.59", "4.82", {"f32": 162, "q4_k": 441, "q5_k": 40, "q6_k": 81}),
    ("mistral-7b-v0.1", "Q4_K_M", "4.07", "4.83", {"f32": 65, "q4_k": 193, "q6_k": 33}),
    (
        "qwen2.5-0.5b",
        "Q4_K_M",
        "373.71",
        "6.35",
        {"f32": 121, "q5_0": 132, "q8_0": 13, "q4_k": 12, "q6_k": 12},
    ),
    ("qwen2.5-7b-instruct", "Q4_K_M", "4.36", "4.91", {"f32": 141, "q4_k": 169, "q6_k": 29}),
    ("qwen2.5-14b-instruct", "Q4_K_M", "8.37", "4.87", {"f32": 241, "q4_k": 289, "q6_k": 49}),
    ("qwen2.5-32b", "Q4_K_M", "18.48", "4.85", {"f32": 321, "q4_k": 385, "q6_k": 65}),
    ("qwen3-8b", "Q4_K_M", "4.68", "4.90", {"f32": 145, "q4_k": 217, "q6_k": 37}),
    ("qwen3-30b-a3b", "Q4_K_M", "17.28", "4.86", {"f32": 241, "q4_k": 289, "q6_k": 49}),
    ("gemma-2-9b", "Q4_K_M", "5.36", "4.98", {"f32": 169, "q4_k": 252, "q6_k": 43}),
    ("gemma-3-27b", "Q4_K_M", "15.40", "4.90", {"f32": 373, "q4_k": 374, "q6_k": 61}),
    ("deepseek-v2-lite", "Q4_K_M", "9.65", "5.28", None),
    ("gemma-3-12b", "Q4_K_M", "6.79", "4.96", None),
    ("gpt-oss-20b", "MXFP4_MOE", "11.27", "4.63", None),  # llama-quantize prints 11536.18 MB
    ("gpt-oss-120b", "MXFP4_MOE", "59.02", "4.34", None),
    ("qwen3.6-35b-a3b", "Q4_K_M", "20.21", "4.89", None),  # 35.51 B, with its prediction layer
]
# ``model_size`` of llama-bench's JSON in public benchmark results of these files: bytes, to the last one.
MEASURED = [
    ("llama-3.2-1b", "q4_k_m", 799_862_912),
    ("smollm2-135m", "q4_k_m", 103_668_480),
    ("qwen2.5-7b", "q4_k_m", 4_677_120_000),
    ("qwen3-0.6b", "q4_k_m", 390_753_280),
    ("qwen3.6-35b-a3b", "q4_k_m", 21_155_768_832),  # lmstudio-community's, made with --no-mtp
]


@pytest.mark.parametrize(
    ("name", "mixture", "size", "bits", "kinds"), PRINTED, ids=lambda value: str(value)[:24]
)
def test_published_builds(
    name: str, mixture: str, size: str, bits: str, kinds: dict[str, int] | None
) -> None:
    model = load_model(name)
    inventory = sources_of(model).inventory
    assert inventory is not None
    word = known_mixture(mixture)
    build = converted(model, inventory, word)
    total = sum(build.bytes_by_name.values()) + build.prediction
    tensors, _ = tensors_of(model, inventory)
    numbers = sum(tensor.columns * tensor.rows for tensor in tensors)
    assert f"{total / (GIB if total >= GIB else MIB):.2f}" == size  # as llama.cpp prints it
    assert f"{total * 8 / numbers:.2f}" == bits
    if kinds is not None:
        assert Counter(types_of(tensors, word, hyper_of(model, inventory, tensors))) == kinds


@pytest.mark.parametrize(("name", "mixture", "size"), MEASURED, ids=str)
def test_measured_builds(name: str, mixture: str, size: int) -> None:
    model = load_model(name)
    inventory = sources_of(model).inventory
    assert inventory is not None
    assert sum(converted(model, inventory, mixture, with_mtp=False).bytes_by_name.values()) == size


def test_a_prediction_layer_is_in_the_file_and_not_in_memory() -> None:
    """``load_mtp`` is off but for a draft of it (src/models/qwen35moe.cpp: TENSOR_SKIP)."""
    model = load_model("qwen3.6-35b-a3b")
    inventory = sources_of(model).inventory
    assert inventory is not None
    whole, without = (converted(model, inventory, "q8_0", with_mtp=word) for word in (True, False))
    assert whole.bytes_by_name == without.bytes_by_name
    drafts = sum(tensor.elements for block in inventory.draft for tensor in block.tensors)
    assert whole.prediction > drafts * 34 // 32
    assert without.prediction == 0


def test_a_70b_on_two_cards_is_answered_with_a_pool() -> None:
    found = kvplan.size(
        "llama-3.3-70b", engine="llamacpp", gpu="2xrtx-3090", quantization="q4_k_m", tokens=4096
    )
    assert found.budget is not None
    assert found.weights is not None
    assert f"{found.weights.total_bytes / GIB:.2f}" == "39.59"


def test_mixtures_by_any_spelling_and_no_others() -> None:
    assert known_mixture("Q4_K") == "q4_k_m"
    assert known_mixture("iq4_XS") == "iq4_xs"
    with pytest.raises(KvplanError) as caught:
        kvplan.size("llama-3.1-8b", engine="llamacpp", gpu="rtx-4090", quantization="q4_km")
    assert caught.value.help == ("did you mean q4_k_m?",)
    with pytest.raises(KvplanError):
        known_mixture("awq")


def test_rows_are_whole_blocks() -> None:
    assert row_bytes("q4_k", 4096) == 16 * 144
    assert row_bytes("q8_0", 100) == 4 * 34
    assert all(kind in BLOCKS for kind in MIXTURES.values())


def test_which_layers_get_more_bits() -> None:
    assert [index for index in range(32) if more_bits(index, 32)] == [
        0,
        1,
        2,
        3,
        6,
        9,
        12,
        15,
        18,
        21,
        24,
        27,
        28,
        29,
        30,
        31,
    ]


def test_rows_that_are_no_whole_blocks_fall_back() -> None:
    hyper = Hyper(1, 0, 1)
    odd = [GgufTensor("blk.0.ffn_up.weight", 96, 4, 2, 0), GgufTensor("blk.0.ffn_gate.weight", 40, 4, 2, 0),
           GgufTensor("output.weight", 96, 4, 2)]  # fmt: skip
    assert types_of(odd, "q4_k_m", hyper) == ["q5_0", "f16", "q8_0"]
    assert types_of(odd, "q3_k_s", hyper)[0] == "q4_0"
    assert types_of(odd, "iq4_xs", hyper)[0] == "iq4_nl"


def test_no_matrix_stays_in_float32() -> None:
    """A q4_k_m build of every card: norms, biases, routers, convolutions and positions are float32, not a
    100th of it, and the layers' rows that are whole blocks at most 5.6 bits a number."""
    answered = 0
    for card in list_cards():
        model = load_model(card.id)
        inventory = sources_of(model).inventory
        if inventory is None:
            continue
        try:
            tensors, _ = tensors_of(model, inventory)
        except RefusedError:
            continue
        answered += 1
        kinds = types_of(tensors, "q4_k_m", hyper_of(model, inventory, tensors))
        pairs = list(zip(tensors, kinds))
        whole = sum(tensor.columns * tensor.rows for tensor in tensors)
        assert sum(one.columns * one.rows for one, kind in pairs if kind == "f32") * 100 < whole, card.id
        inside = [(one, kind) for one, kind in pairs if one.layer is not None and one.columns % 256 == 0]
        numbers = sum(one.columns * one.rows for one, _ in inside)
        size = sum(row_bytes(kind, one.columns) * one.rows for one, kind in inside)
        assert size * 8 <= numbers * 5.6, (card.id, size * 8 / max(1, numbers))
    assert answered > 190


TAKEN = ("q8_0", "q4_k_m", "iq2_xxs")


@pytest.mark.laws
@pytest.mark.parametrize("mixture", TAKEN)
def test_every_card_is_sized_or_refused_for_a_reason(mixture: str) -> None:
    """More bits a number are more bytes, and no card ends in anything but an answer or a refusal. Each card
    in one of the mixtures; in ``make laws`` in all of them."""
    answered = 0
    step = 1 if WHOLE else len(TAKEN)
    for card in list_cards()[TAKEN.index(mixture) % step :: step]:
        model = load_model(card.id)
        inventory = sources_of(model).inventory
        if inventory is None:
            continue
        try:
            sizes = converted(model, inventory, mixture).bytes_by_name
        except RefusedError:
            continue
        answered += 1
        whole = sum(converted(model, inventory, "f32").bytes_by_name.values())
        assert 0 < sum(sizes.values()) < whole
    assert answered > 120 // step
