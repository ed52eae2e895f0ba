"""Fine-tunes and builds under names of their own, by the sizes of their published configs."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.architectures.builds import FORMS
from kvplan.errors import KvplanError
from kvplan.files.cards.formats import inside
from kvplan.files.cards.index import is_name, key_of, packaged_index
from kvplan.files.cards.listed import listed, listed_as, listed_ids
from kvplan.weights.stored import FOREIGN
from tests.files.test_hub_sizes import SIZE


def test_every_line_is_of_a_card_and_of_a_format() -> None:
    names = packaged_index()["names"]
    ids = listed_ids()
    assert ids == sorted(ids)
    assert len(ids) > 2500
    for key in ids:
        one = listed(key)
        assert one is not None
        assert one.card in names, key
        assert one.form in ("whole", "less", *FORMS, *FOREIGN), key
        assert key == key_of(key)
        assert not is_name(key), key


@pytest.mark.parametrize("start", range(20))
def test_an_id_of_the_list_has_the_layers_of_its_card(start: int) -> None:
    for key in listed_ids()[start::200]:
        one = listed(key)
        assert one is not None
        model, card = kvplan.load_model(key), kvplan.load_model(one.card)
        assert (model.id, model.runs) == (key, card.runs)
        assert model.max_model_len == (one.max_model_len or card.max_model_len)
        assert "list: the layers of" in model.warnings[0]


def test_a_name_that_says_a_format_is_not_as_trained() -> None:
    """The list counts packed numbers: ``…-w4a16-autoround`` has nearly as many as the model."""
    for key in listed_ids():
        maker, _, rest = key.rpartition("/")
        one = listed(key)
        assert one is not None
        assert one.form not in ("whole", "less") or inside(rest, maker) is None, key
    assert kvplan.load_model("dbirks/Qwen3.8-27B-W4A16-AutoRound").quantization == "auto-round"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3.8-27b-awq-mtp", "awq"),
        ("qwen3.8-27b-gptq-int4-sym-g128-mtp", "gptq"),
        ("qwen3.8-27b-int8-w8a16-mtp", "w8a16"),
        ("qwen3.8-27b-nvfp4-v17", "modelopt-nvfp4"),
        ("mlx-qwen3.5-9b-v2-4bit", "mlx"),
        ("qwen3.6-27b-int8-autoround-v2", ""),
        ("qwen3.8-27b-awq-6bit", ""),
        ("gemma-4-31b-it-awq-4.85bpw", ""),
        ("ternary-bonsai-27b", ""),
        ("sunflower-qwen-9b-medical-16bit", None),
        ("qwen3.8-27b-turbo-fp16", None),
    ],
)
def test_a_format_is_read_anywhere_in_a_name(name: str, said: str | None) -> None:
    assert inside(name) == said


def test_a_fine_tune_says_by_what_it_is_known() -> None:
    model = kvplan.load_model("deepreinforce-ai/Ornith-1.0-35B-FP8")
    assert model.quantization == "fp8"
    assert model.runs == kvplan.load_model("Qwen/Qwen3.5-35B-A3B").runs
    assert "by its name and its sizes in AlexsJones/llmfit's list" in model.warnings[0]


@pytest.mark.parametrize(
    "name",
    [
        "bartowski/deepreinforce-ai_Ornith-1.0-9B-GGUF:Q4_K_M",
        "mradermacher/Ornith-1.0-9B-GGUF:Q6_K",
        "somebody/Ornith-1.0-9B-AWQ-4bit",
    ],
)
def test_a_build_of_a_fine_tune_has_its_layers(name: str) -> None:
    assert kvplan.load_model(name).runs == kvplan.load_model("Qwen/Qwen3.5-9B").runs


def test_a_name_that_two_models_have_means_neither() -> None:
    """A build's base is looked up without its maker only where all who have the name mean one thing."""
    by_name: dict[str, set[object]] = {}
    for key in listed_ids():
        by_name.setdefault(key.rpartition("/")[2], set()).add(listed(key))
    for rest, meant in by_name.items():
        if len(meant) > 1:
            assert listed_as(f"nobody/{rest}") is None, rest


@pytest.mark.laws
@pytest.mark.parametrize("start", range(4))
def test_another_size_in_the_name_is_another_model(start: int) -> None:
    """`…-9B` is known, `…-10B` is not, nor a build of it, unless there is such a model with other layers."""
    tried = 0
    for key in listed_ids()[start::64]:
        found = SIZE.search(key)
        if found is None:
            continue
        near = f"{key[: found.start()]}{int(float(found[1])) + 1}{found[2]}{key[found.end() :]}"
        for name in (near, f"{near}-gguf:q4_k_m", f"{near}-fp8"):
            tried += 1
            try:
                model = kvplan.load_model(name)
            except KvplanError:
                continue
            assert model.runs != kvplan.load_model(key).runs or listed(near) is not None, (name, model.source)
    assert tried > 40


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlx-community/Qwen3-8B-4bit", "MLX"),
        ("lmstudio-community/Qwen3.8-27B-MLX-6bit", "MLX"),
        ("turboderp/Qwen3-32B-exl3", "ExLlama"),
    ],
)
def test_a_format_of_another_program_answers_for_the_cache_and_says_so(name: str, words: str) -> None:
    model = kvplan.load_model(name)
    assert words in model.warnings[0]
    answer = kvplan.size(name, engine="vllm", gpu="h100-sxm-80gb", tokens=8192)
    assert answer.budget is None
    assert answer.total.kv_bytes_per_request > 0
    why = next(text for text in answer.warnings if text.startswith("no pool was computed"))
    assert f"in {words}'s format, which {words} alone loads" in why


def test_eight_bits_of_awq_are_no_four() -> None:
    four, eight = (kvplan.load_model(f"cyankiwi/Qwen3-32B-AWQ-{bits}bit") for bits in (4, 8))
    sizes = [
        kvplan.size(model, engine="vllm", gpu="h200-sxm-141gb", tokens=8192).budget for model in (four, eight)
    ]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[1].lines[0].bytes > 1.5 * sizes[0].lines[0].bytes


@pytest.mark.parametrize(
    "name", ["BAAI/bge-m3", "BAAI/bge-large-en-v1.5", "mixedbread-ai/mxbai-embed-large-v1"]
)
def test_an_encoder_says_that_it_keeps_no_cache(name: str) -> None:
    answer = kvplan.size(name, tokens=512)
    assert answer.total.kv_bytes_per_request == 0
    assert any("is an encoder" in line for line in answer.warnings)
